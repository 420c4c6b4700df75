"""Ports for tests that must name one before somebody listens there."""

import random

from borgish.cli.local_cell import is_free

_LOW, _HIGH = 2000, 7399
"""Below those of local cells and of their tasks, and of those that the kernel gives to connections: such a
one may be taken by anybody's next connection, in the moment between choosing and listening."""
_GIVEN: set[int] = set()


def free_port() -> int:
    """Return a port that nobody listens on now, another each time. Another process that asks most likely gets
    another, too."""
    chance = random.SystemRandom()
    while True:
        port = chance.randint(_LOW, _HIGH)
        if port not in _GIVEN and is_free(port):
            _GIVEN.add(port)
            return port
