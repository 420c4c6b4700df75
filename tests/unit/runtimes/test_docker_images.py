"""How often images are looked at, and which are kept; against a made-up engine."""

from typing import Any, cast

import pytest
from docker.errors import NotFound

from borgish.borglet.runtimes.docker.engine import Engine
from borgish.borglet.runtimes.docker.runtime import IMAGES_MAX, Images
from borgish.clock import Now


class Hand:
    """A clock with a hand on it."""

    def __init__(self) -> None:
        self.at = Now(1000.0, 5.0)

    def now(self) -> Now:
        return self.at


class FewImages:
    """An engine, and its client, with images in a list."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows)
        self.lists = 0
        self.inspected: list[str] = []

    async def quick(self, call: Any) -> Any:
        return call(self)

    def images(self) -> list[dict[str, Any]]:
        self.lists += 1
        return self.rows

    def inspect_image(self, image: str) -> dict[str, Any]:
        self.inspected.append(image)
        if image == "gone":
            raise NotFound("it went")
        return {"Architecture": "arm64"}


def row(image: str, *tags: str, created: int = 5) -> dict[str, Any]:
    return {"Id": image, "Created": created, "RepoTags": list(tags) or None}


@pytest.fixture
def clock() -> Hand:
    return Hand()


def images_of(engine: FewImages, clock: Hand) -> Images:
    return Images(cast("Engine", engine), clock)


async def test_without_news_they_are_looked_at_again_after_a_minute(clock: Hand) -> None:
    engine = FewImages(row("1", "a:1", "b:2", "<none>:<none>"), row("2"))
    images = images_of(engine, clock)
    await images.look_when_due()
    clock.at = clock.at.later(59.0)
    await images.look_when_due()
    assert (engine.lists, images.by_name) == (1, {"a:1": "arm64", "b:2": "arm64"})
    clock.at = clock.at.later(2.0)
    engine.rows.append(row("3", "c:1"))
    await images.look_when_due()
    assert (engine.lists, "c:1" in images.by_name) == (2, True)
    assert engine.inspected == ["1", "3"]  # each once


async def test_news_make_them_due(clock: Hand) -> None:
    engine = FewImages(row("1", "a:1"))
    images = images_of(engine, clock)
    await images.look_when_due()
    engine.rows.clear()
    images.heard({"Action": "untag"})
    await images.look_when_due()
    assert images.by_name == {}


async def test_one_that_goes_while_it_is_looked_into_is_left_out(clock: Hand) -> None:
    images = images_of(FewImages(row("gone", "a:1"), row("1", "b:1")), clock)
    await images.look_when_due()
    assert images.by_name == {"b:1": "arm64"}


async def test_of_very_many_the_newest_are_kept(clock: Hand) -> None:
    engine = FewImages(*(row(str(n), f"a:{n}", created=n) for n in range(IMAGES_MAX + 10)))
    images = images_of(engine, clock)
    await images.look_when_due()
    assert len(images.by_name) == IMAGES_MAX
    assert "a:9" not in images.by_name
    assert f"a:{IMAGES_MAX + 9}" in images.by_name
