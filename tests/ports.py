"""Ports for tests that must name one before somebody listens there."""

import random
import socket

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
        if port in _GIVEN:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _GIVEN.add(port)
            return port
