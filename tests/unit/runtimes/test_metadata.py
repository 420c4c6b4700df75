"""The rule that closes the address of a cloud's credentials."""

from pathlib import Path

import pytest

from borgish.borglet.runtimes.process import metadata
from borgish.borglet.runtimes.process.metadata import close_metadata, nft_text
from borgish.borglet.runtimes.process.uids import UidRules
from borgish.vocabulary import HELD

RULES = UidRules(low=2000, high=2009, users={"bob": (1500, 1500)})


def tool(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("path")
async def test_without_a_tool_it_is_said() -> None:
    assert await close_metadata(RULES) == "neither nft nor iptables is there"


async def test_nft_gets_one_table_for_all(path: Path) -> None:
    tool(path, "nft", f"/bin/cat > {path}/got")
    assert await close_metadata(RULES) == HELD
    got = (path / "got").read_text()
    assert got == nft_text(RULES.ranges)
    assert "meta skuid { 2000-2009, 1500 } ip daddr 169.254.169.254 reject" in got
    assert got.count("{") == got.count("}")


@pytest.mark.parametrize("speaks_ip6", [True, False])
async def test_iptables_gets_each_rule_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, speaks_ip6: bool
) -> None:
    monkeypatch.setattr(metadata, "SPEAKS_IP6", path if speaks_ip6 else path / "none")
    for name in metadata.TABLES.values():
        tool(path, name, f'echo {name} "$@" >> {path}/got; [ "$2" != -C ]')
    assert await close_metadata(RULES) == HELD
    lines = (path / "got").read_text().splitlines()
    rule = "-w -I OUTPUT -d {} -m owner --uid-owner {} -m comment --comment borgish -j REJECT"
    wanted = [(name, metadata.ADDRESSES[family]) for family, name in metadata.TABLES.items()]
    assert [line for line in lines if "-C" not in line] == [
        f"{name} {rule.format(address, uid)}"
        for name, address in wanted[: 1 + speaks_ip6]
        for uid in ("2000-2009", "1500")
    ]
    (path / "got").unlink()
    for name in metadata.TABLES.values():
        tool(path, name, f'echo "$@" >> {path}/got')
    assert await close_metadata(RULES) == HELD
    assert "-I" not in (path / "got").read_text()


async def test_what_a_tool_says_is_the_reason(path: Path) -> None:
    tool(path, "nft", "echo 'no right to' >&2; exit 1")
    assert await close_metadata(RULES) == "nft: no right to"
