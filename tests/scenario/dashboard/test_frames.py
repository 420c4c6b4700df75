"""Whole frames, as recorded in ``frames/``. ``BORGISH_RECORD=1`` records them anew."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from borgish.dashboard.app import plain
from borgish.dashboard.frame import Shown, frame
from borgish.dashboard.place import View
from borgish.dashboard.screen import draw
from docs.generate.picture import PICTURE, svg
from tests.unit.dashboard import answers, summaries

FRAMES = Path(__file__).parent / "frames"
LOST = "not reachable since 12 s: http://127.0.0.1:7400 cannot be reached: connection refused"
SHOWN = {
    "busy": Shown(summaries.busy()),
    "empty": Shown(summaries.empty()),
    "hostile": Shown(summaries.hostile()),
    "huge": Shown(summaries.full()),
    "lost": Shown(summaries.busy(), banner=LOST),
}


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def check(name: str, shown: str) -> None:
    recorded = FRAMES / f"{name}.txt"
    if os.environ.get("BORGISH_RECORD"):
        recorded.parent.mkdir(exist_ok=True)
        recorded.write_text(shown, "utf-8")
    assert shown == recorded.read_text("utf-8")


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("kind", SHOWN)
def test_a_frame_is_as_recorded(kind: str, size: tuple[int, int]) -> None:
    check(f"{kind}-{size[0]}x{size[1]}", plain(frame(SHOWN[kind], *size)))


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("view", View)
def test_a_place_is_as_recorded(view: View, size: tuple[int, int]) -> None:
    at = answers.place(view, at=2)
    check(f"place-{view}-{size[0]}x{size[1]}", plain(draw(answers.walk(at), answers.known(at), *size).frame))


def test_the_readme_shows_the_dashboard_as_it_is() -> None:
    """What scripts/picture draws is what stands in docs/images."""
    assert svg() == PICTURE.read_text("utf-8")


def test_one_frame_for_a_file_is_as_recorded() -> None:
    check("once", plain(frame(Shown(summaries.busy(), keys=False), 100, 40, filled=False)))
