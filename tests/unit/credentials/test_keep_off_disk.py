"""What keeps a daemon's memory from core dumps and from other programs of its user."""

import subprocess
import sys

TRIED = """
import ctypes, resource
from borgish.credentials import keep_off_disk
keep_off_disk()
print(resource.getrlimit(resource.RLIMIT_CORE)[0], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
"""Of a process of its own: it cannot be taken back. 3 is PR_GET_DUMPABLE."""


def test_a_daemon_leaves_no_core_dump_and_is_not_looked_into() -> None:
    said = subprocess.run([sys.executable, "-c", TRIED], check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["0", "0"]
