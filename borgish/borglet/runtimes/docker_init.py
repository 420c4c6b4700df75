"""Whether a container's program could be run at all.

Each container has the engine's small init as its first process, so the engine reports a start before
the program itself was found. The init tries once, at once; what became of it shows in /proc, where
this machine's own engine keeps its processes, and in the init's last words.
"""

import asyncio
import re
from pathlib import Path

LOOK_SECONDS = 0.003
LOOKS_MAX = 60
CANNOT_RUN_CODES = (126, 127)
_LAST_WORDS = re.compile(r"\[FATAL tini \(\d+\)\] exec (.*) failed: (.*)")


async def program_runs(pid: int, container: str) -> bool:
    """Wait until the init has become two, the program beside it, or none: then return False.

    True also when it takes too long to tell, or cannot be told: an engine on another machine.
    """
    for _ in range(LOOKS_MAX):
        if (verdict := _look(pid, container)) is not None:
            return verdict
        await asyncio.sleep(LOOK_SECONDS)
    return True


def _look(pid: int, container: str) -> bool | None:
    base = Path("/proc") / str(pid)
    try:
        if container not in (base / "cgroup").read_text():
            return True
        children = (base / "task" / str(pid) / "children").read_text().split()
        names = {(Path("/proc") / child / "comm").read_text() for child in children}
        return True if names - {(base / "comm").read_text()} else None
    except OSError:  # something of it has just gone: the whole, or one try
        return None if base.exists() else False


def why_not(output: bytes) -> str:
    """Return why the init could not run the program, "" when it could."""
    said = _LAST_WORDS.search(output.decode(errors="replace"))
    return f"{said[1]}: {said[2].strip()}" if said else ""
