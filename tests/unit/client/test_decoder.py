"""Several threads that read answers of the same kinds for the first time."""

import signal
import subprocess
import sys

from tests.forked import ROOT, plain_environment

PROCESSES = 60
_PROGRAM = """
import os, sys, threading, msgspec
from borgish.client import decoder
from borgish.wire.api import JobList, MachineList

def read(together):
    together.wait()
    for shape in (JobList, MachineList):
        try:
            decoder(shape).decode(b'{"items": [{}]}')
        except msgspec.ValidationError:
            pass

sys.setswitchinterval(1e-6)
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        together = threading.Barrier(4)
        threads = [threading.Thread(target=read, args=(together,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_threads_that_meet_a_type_first_at_the_same_time_end_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(PROCESSES)],
        cwd=ROOT,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    codes = [int(line) for line in done.stdout.split()]
    assert codes == [0] * PROCESSES, f"{codes.count(-signal.SIGSEGV)} ended by a signal"
