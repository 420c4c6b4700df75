"""The address of a cloud's credentials, with somebody who listens there: in a network of the test's own,
closed to programs by each tool that can close it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from borgish.borglet.runtimes.process.metadata import ADDRESSES
from borgish.vocabulary import HELD
from tests.cells import ROOT
from tests.integration.runtimes.machine import PYTHON, end_all

pytestmark = [
    pytest.mark.networks,
    pytest.mark.skipif(os.geteuid() != 0, reason="only a borglet that is root gives each user a uid"),
]

ELSEWHERE = "127.0.0.1"
CALL = """
import json, os, socket

def call(address):
    try:
        socket.create_connection((address, 80)).close()
    except OSError as error:
        return str(error.strerror)
    return "open"

print(json.dumps({address: call(address) for address in json.loads(os.environ["ADDRESSES"])}), flush=True)
"""
PLAY = """
import asyncio, json, os, socket, subprocess, sys
from pathlib import Path
from types import SimpleNamespace
from borgish.borglet.runtimes.process import metadata
from borgish.borglet.runtimes.process.runtime import ProcessRuntime
from borgish.vocabulary import Runtime
from borgish.wire.link import LogWanted
from tests.contract.runtime.suite import Watched, attempt_spec, text

folder, tool, python, call = sys.argv[1:]
told = os.environ["ADDRESSES"]
metadata.shutil = SimpleNamespace(which=lambda name: name if name == tool else None)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
for address in metadata.ADDRESSES.values():
    # Without nodad an address of IPv6 is tentative for a moment, and nobody may listen at it.
    nodad = ["nodad"] if ":" in address else []
    subprocess.run(["ip", "address", "add", address, "dev", "lo", *nodad], check=True)
families = {address: socket.AF_INET6 if ":" in address else socket.AF_INET for address in json.loads(told)}
listening = [socket.create_server((address, 80), family=family) for address, family in families.items()]

async def main():
    watched = await Watched(ProcessRuntime(Path(folder))).open()
    spec = attempt_spec((python, "-c", call), Runtime.PROCESS, env={"ADDRESSES": told})
    await watched.runtime.start(spec, 1)
    await watched.end_of(spec.key)
    said = await text(watched.runtime.logs(spec.key, LogWanted()))
    measure = watched.runtime.measures()["metadata"]
    await watched.runtime.close()
    here = subprocess.run([python, "-c", call], check=True, capture_output=True, text=True).stdout
    print(json.dumps([measure, json.loads(said), json.loads(here)]))

asyncio.run(main())
"""


@pytest.mark.parametrize("tool", ["nft", "iptables"])
def test_the_metadata_address_is_closed_to_programs_and_open_to_root(tmp_path: Path, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here")
    addresses = [ELSEWHERE, *ADDRESSES.values()]
    try:
        done = subprocess.run(
            ["unshare", "--net", sys.executable, "-c", PLAY, tmp_path / "m1", tool, PYTHON, CALL],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"ADDRESSES": json.dumps(addresses)},
        )
    finally:
        end_all(tmp_path / "m1")
    assert done.returncode == 0, done.stderr
    measure, program, root = json.loads(done.stdout)
    assert measure == HELD
    assert root == dict.fromkeys(addresses, "open")
    assert program.pop(ELSEWHERE) == "open"
    assert program == dict.fromkeys(ADDRESSES.values(), "Connection refused")
