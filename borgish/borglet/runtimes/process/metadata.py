"""The address where a cloud tells a machine its credentials, closed for tasks by their uid.

With whichever of nft and iptables is there. A machine with neither is no error: what does not hold is shown.
Borglets of one host that give the same uids share the rule, so none of them takes it back; it goes with the
next boot, and is about nobody else's programs.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from borgish.borglet.runtimes.process.uids import UidRules
from borgish.text import safe
from borgish.vocabulary import HELD

ADDRESSES = {"ip": "169.254.169.254", "ip6": "fd00:ec2::254"}
TABLES = {"ip": "iptables", "ip6": "ip6tables"}
SPEAKS_IP6 = Path("/proc/net/if_inet6")  # which a kernel has that speaks it
SECONDS_MAX = 5.0


async def close_metadata(rules: UidRules) -> str:
    """Let no task reach the address; return "held", or why not. Tasks of root are not told from others."""
    uids = rules.ranges
    if shutil.which("nft"):
        return await _run(nft_text(uids), "nft", "-f", "-")
    if shutil.which("iptables"):
        said = [await _add_to_iptables(family, uid) for family in _spoken() for uid in uids]
        return next((line for line in said if line != HELD), HELD)
    return "neither nft nor iptables is there"


def nft_text(uids: Sequence[str]) -> str:
    """Return the whole table, which takes the place of one from before."""
    table, some = f"borgish_{uids[0].replace('-', '_')}", ", ".join(uids)
    lines = [f"    meta skuid {{ {some} }} {family} daddr {to} reject" for family, to in ADDRESSES.items()]
    chain = ["  chain output {", "    type filter hook output priority 0; policy accept;", *lines, "  }"]
    return "\n".join(
        [f"add table inet {table}", f"delete table inet {table}", f"table inet {table} {{", *chain, "}", ""]
    )


def _spoken() -> list[str]:
    return [family for family in ADDRESSES if family != "ip6" or SPEAKS_IP6.exists()]


async def _add_to_iptables(family: str, uid: str) -> str:
    ours = ["-m", "comment", "--comment", "borgish"]
    rule = ["OUTPUT", "-d", ADDRESSES[family], "-m", "owner", "--uid-owner", uid, *ours, "-j", "REJECT"]
    if await _run("", TABLES[family], "-w", "-C", *rule) == HELD:
        return HELD
    return await _run("", TABLES[family], "-w", "-I", *rule)


async def _run(text: str, *command: str) -> str:
    """Run a command on a text; return "held" when it went well, else what it said."""
    try:
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            input=text.encode(),
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]} cannot be run: {safe(str(error))}"
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    return HELD if done.returncode == 0 else f"{command[0]}: {safe(lines[0]) or 'failed'}"
