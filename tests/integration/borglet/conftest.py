"""A master that a test plays, and a borglet that has joined it; whatever runs there is ended."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.borglet.harness import Borglet, Master, clear, reached, wait_until


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    yield master
    master.close()


@pytest.fixture
def borglet(tmp_path: Path, master: Master) -> Iterator[Borglet]:
    borglet = Borglet(tmp_path, master)
    borglet.start()
    try:
        wait_until(lambda: master.joins, "joined")
        wait_until(lambda: reached(master), "the borglet knows the poll token")
        yield borglet
    finally:
        if borglet.process and borglet.process.poll() is not None:
            borglet.start()
        clear(master)
        borglet.end(signal.SIGTERM)
