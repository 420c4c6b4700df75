"""Connections to ports of this machine, on which its tasks listen."""

import asyncio
from collections.abc import Awaitable, Callable

HOST = "127.0.0.1"

Connect = Callable[[int, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Connects to a port; a line of what comes from there has at most so many bytes. Raises OSError."""


async def connect(port: int, line_bytes_max: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a port of this host. Raises OSError."""
    return await asyncio.open_connection(HOST, port, limit=line_bytes_max)
