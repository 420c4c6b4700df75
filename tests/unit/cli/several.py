"""Small masters that somebody is logged in to, each by the name of a cell."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from borgish.wire.api import WhoamiView
from tests.unit.cli.samples import FakeMaster, serving


@contextmanager
def logged_in(home: Path, *names: str) -> Iterator[dict[str, FakeMaster]]:
    """Serve a small master for each cell, whose folders are in ``home`` as those in ~/.config."""
    with ExitStack() as served:
        masters = {name: served.enter_context(serving(FakeMaster())) for name in names}
        for name, master in masters.items():
            master.answers["GET /v1/whoami"] = WhoamiView("ann", "user")
            keep(home, name, master.url)
        yield masters


def keep(home: Path, name: str, url: str) -> None:
    """Be logged in to a cell."""
    folder = home / "borgish" / "cells" / name
    folder.mkdir(parents=True)
    (folder / "token").write_text(f"bgt_{name}\n")
    (folder / "client.json").write_bytes(msgspec.json.encode({"url": url, "token_file": "token"}))
