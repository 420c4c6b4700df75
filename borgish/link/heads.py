"""Asks machines what they have seen of masters, before one leads: nothing is changed by asking."""

import asyncio
from collections.abc import Sequence

import msgspec

from borgish.cell.model import Machine
from borgish.errors import Unreachable
from borgish.link.transport import Transport
from borgish.wire.link import HeadReply

ASKED_MAX = 100
"""Of more machines, so many are asked: whoever was led by a newer master has seen it."""
WAIT_SECONDS = 0.5
"""All have so long; then it is enough that half have answered, or ended without an answer."""
WAIT_SECONDS_MAX = 4.0

_decode = msgspec.json.Decoder(HeadReply).decode


async def ask_heads(
    machines: Sequence[Machine], transport: Transport, strangers: list[str] | None = None
) -> tuple[HeadReply, ...]:
    """Return what those machines say that answer in time. Does not raise.

    Those that do not know the token, since their master has another secret, are added to ``strangers``.
    """
    strangers = [] if strangers is None else strangers
    step = max(1, -(-len(machines) // ASKED_MAX))
    asked = [asyncio.create_task(_ask(record, transport, strangers)) for record in machines[::step]]
    if not asked:
        return ()
    await _wait(asked)
    for task in asked:
        task.cancel()
    found = await asyncio.gather(*asked, return_exceptions=True)
    return tuple(reply for reply in found if isinstance(reply, HeadReply))


async def _wait(asked: "Sequence[asyncio.Task[HeadReply | None]]") -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_SECONDS_MAX
    _, missing = await asyncio.wait(asked, timeout=WAIT_SECONDS)
    while 2 * len(missing) > len(asked) and loop.time() < end:
        _, missing = await asyncio.wait(
            missing, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED
        )


async def _ask(record: Machine, transport: Transport, strangers: list[str]) -> HeadReply | None:
    """Return what one machine says; None for one that cannot, as one that is older than this question."""
    peer = transport.peer(record)
    body = b""
    try:
        async for part in peer.stream("/v1/head"):
            if part.status == 401:
                strangers.append(record.name)
            if part.status != 200:
                return None
            body += part.body
        reply = _decode(body)
        return reply if reply.machine == record.name else None
    except (Unreachable, OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    finally:
        peer.close()
