"""For how long polls are held, by the size of the cell."""

import pytest

from borgish.cell.tasks.leases import LEASE_SECONDS
from borgish.link.holds import RETRY_JITTER, RETRY_SECONDS, PollSettings
from borgish.master.host.settings import Poll
from borgish.reconcilers.settings import OVERDUE_SHARE, ReconcileSettings

USUAL = PollSettings()


@pytest.mark.parametrize(
    ("machines", "seconds"),
    [
        (0, 2.0),
        (1, 2.0),
        (1_000, 2.0),
        (4_000, 2.0),
        (5_000, 2.5),
        (8_000, 4.0),
        (9_000, 4.5),
        (10_000, 4.5),
        (100_000, 4.5),
    ],
)
def test_large_cells_hold_longer(machines: int, seconds: float) -> None:
    assert USUAL.hold_of(machines) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        (PollSettings(down_after_seconds=8.0), 2.9),  # asked again 1.1 s later, for twice 2 s in all
        (PollSettings(down_after_seconds=5.0), 2.0),  # not below what a small cell has
        (PollSettings(hold_seconds=14.0, down_after_seconds=60.0), 14.0),
        (PollSettings(hold_seconds_max=1.0), 2.0),
        (PollSettings(hold_seconds_max=8.0, down_after_seconds=60.0), 5.0),
    ],
)
def test_settings_set_the_bounds(settings: PollSettings, seconds: float) -> None:
    assert settings.hold_of(10_000) == pytest.approx(seconds)


def test_who_missed_two_polls_is_not_down_yet_however_large_the_cell_is() -> None:
    first = USUAL.hold_of(10**6) + USUAL.timeout_seconds
    second = first + RETRY_SECONDS * (1 + RETRY_JITTER) + USUAL.timeout_seconds
    assert second < ReconcileSettings().down_after_seconds
    assert second < LEASE_SECONDS / 2  # the poll after a third miss still renews what is exclusive


def test_half_of_machines_that_fail_together_are_overdue_when_the_first_is_down() -> None:
    """Their last answers are spread over a hold."""
    down, hold = ReconcileSettings().down_after_seconds, USUAL.hold_of(10**6)
    assert max(OVERDUE_SHARE * down, hold + USUAL.timeout_seconds) < down - hold / 2


def test_what_masters_read_is_what_polls_go_by() -> None:
    read = Poll()
    assert (read.hold_seconds, read.hold_seconds_max, read.timeout_seconds, read.down_after_seconds) == (
        USUAL.hold_seconds,
        USUAL.hold_seconds_max,
        USUAL.timeout_seconds,
        USUAL.down_after_seconds,
    )
