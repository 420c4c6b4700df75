"""Which images the engine has, and for which architecture, so that tasks can go where theirs is.

The engine's list does not tell architectures; each image is looked into once. Looked at anew each
minute, and soon after the engine told that an image came or went.
"""

from typing import Any

from docker.errors import NotFound

from borgish.borglet.runtimes.docker_engine import Client, Engine, News
from borgish.clock import Clock

LOOK_SECONDS = 60.0
IMAGES_MAX = 256
EVENTS = {"type": "image", "event": ["pull", "load", "import", "tag", "untag", "delete"]}
_NO_NAME = "<none>:<none>"


class Images:
    """The newest images of one engine. ``by_name``: from ``name:tag`` to the architecture, like amd64."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.by_name: dict[str, str] = {}
        self._engine, self._clock = engine, clock
        self._architectures: dict[str, str] = {}  # by image id
        self._due = float("-inf")  # when (monotonic) to look next

    def heard(self, _news: News) -> None:
        """Take in that an image came or went."""
        self._due = float("-inf")

    async def look_when_due(self) -> None:
        """Look at all images, if it is time to. Raises Unreachable or APIError."""
        now = self._clock.now().mono
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS  # before the look: what comes meanwhile makes it due again
        rows = await self._engine.quick(_list)
        tagged = [(row, name) for row in rows for name in row["RepoTags"] or () if name != _NO_NAME]
        newest = sorted(tagged, key=lambda one: (-one[0]["Created"], one[1]))[:IMAGES_MAX]
        ids = dict.fromkeys(row["Id"] for row, _ in newest)  # many names can be of one image
        self._architectures = known = {image: await self._architecture(image) for image in ids}
        self.by_name = {name: known[row["Id"]] for row, name in newest if known[row["Id"]]}

    async def _architecture(self, image: str) -> str:
        """Return an image's architecture; "" when it has just gone."""
        if found := self._architectures.get(image):
            return found
        try:
            seen: dict[str, Any] = await self._engine.quick(lambda client: client.inspect_image(image))
        except NotFound:
            return ""
        return str(seen.get("Architecture", ""))


def _list(client: Client) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.images()
    return rows
