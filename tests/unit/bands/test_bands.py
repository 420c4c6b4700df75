"""Which band a priority lies in, what bands are called, and which ranges make sense."""

import pytest

from borgish.bands import DEFAULT_BANDS, Bands, wrong_with
from borgish.vocabulary import Band

SHIFTED = Bands(monitoring=360, production=120, batch=110, highest=450, names={"prod": Band.PRODUCTION})


@pytest.mark.parametrize(
    ("priority", "usual", "shifted"),
    [
        (0, Band.FREE, Band.FREE),
        (99, Band.FREE, Band.FREE),
        (100, Band.BATCH, Band.FREE),
        (119, Band.BATCH, Band.BATCH),
        (120, Band.BATCH, Band.PRODUCTION),
        (299, Band.PRODUCTION, Band.PRODUCTION),
        (300, Band.MONITORING, Band.PRODUCTION),
        (399, Band.MONITORING, Band.MONITORING),
    ],
)
def test_a_priority_lies_in_one_band(priority: int, usual: Band, shifted: Band) -> None:
    assert DEFAULT_BANDS.of(priority) is usual
    assert SHIFTED.of(priority) is shifted


@pytest.mark.parametrize("bands", [DEFAULT_BANDS, SHIFTED])
def test_each_band_begins_at_its_floor(bands: Bands) -> None:
    for band in Band:
        assert bands.of(bands.floor(band)) is band
        if bands.floor(band):
            assert bands.of(bands.floor(band) - 1) is not band


def test_bands_go_by_their_own_and_by_other_names() -> None:
    assert SHIFTED.named("prod") is SHIFTED.named("production") is Band.PRODUCTION
    assert DEFAULT_BANDS.named("prod") is None
    assert SHIFTED.words == ("monitoring", "production", "batch", "free", "prod")


@pytest.mark.parametrize(
    ("bands", "words"),
    [
        (Bands(free=1), "free begins"),
        (Bands(batch=0), "are not in ascending order"),
        (Bands(production=100), "are not in ascending order"),
        (Bands(monitoring=200), "are not in ascending order"),
        (Bands(batch=-5), "are not in ascending order"),
        (Bands(highest=299), "are not in ascending order"),
        (Bands(highest=10_000), "more than 9999"),
        (Bands(names={"free": Band.BATCH}), "own name"),
        (Bands(names={"Prod": Band.PRODUCTION}), "invalid name"),
        (Bands(names={"200": Band.PRODUCTION}), "invalid name"),
        (Bands(names={"": Band.PRODUCTION}), "invalid name"),
    ],
)
def test_ranges_and_names_that_make_no_sense(bands: Bands, words: str) -> None:
    wrong, hint = wrong_with(bands)
    assert words in wrong
    assert hint


def test_what_makes_sense() -> None:
    assert wrong_with(DEFAULT_BANDS) == wrong_with(SHIFTED) == ("", "")
