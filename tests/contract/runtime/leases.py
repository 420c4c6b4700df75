"""What a runtime with leases must do, as tests to inherit: a run ends with its lease, also without a borglet.

class TestKind(RunContract, LogContract, ProgramContract, LeaseContract): ...
"""

import os
import time

import psutil
import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.spec.job import Stop
from borgish.wire.link import AttemptSpec, LogWanted
from tests.contract.runtime.suite import Program, RuntimeCase, Watched, attempt_spec, text

SOON, LONG = 0.4, 600.0
CHILD = ["sleep", f"300.{os.getpid()}"]  # by this known on the machine, whatever its number for the program
STUBBORN = f'trap "" TERM; setsid {" ".join(CHILD)} & echo up; wait; sleep 300'


def in_seconds(seconds: float) -> float:
    """Return when a lease ends that lasts so long from now on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) + seconds


def leased(case: RuntimeCase, program: Program = Program(), **changes: object) -> AttemptSpec:  # noqa: B008 - frozen
    return case.spec(program, lease_seconds=30.0, **changes)


class LeaseContract:
    """Runs end with their leases."""

    async def test_when_its_lease_is_over_a_run_gets_its_signal(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = leased(runtime_case, stop=Stop("INT", 60.0))
        opened.runtime.renew(spec.key, in_seconds(SOON))
        await opened.runtime.start(spec, 1)
        ended = await opened.end_of(spec.key)
        assert (ended.signal, ended.lapsed) == (2, True)
        assert "lease" in ended.reason

    async def test_what_ignores_it_is_killed_after_its_grace_with_all_that_it_started(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        spec = attempt_spec(
            ("sh", "-c", STUBBORN), opened.runtime.kind, lease_seconds=30.0, stop=Stop("TERM", SOON)
        )
        opened.runtime.renew(spec.key, in_seconds(SOON))
        await opened.runtime.start(spec, 1)
        ended = await opened.end_of(spec.key)
        assert (ended.signal, ended.lapsed) == (9, True)
        assert await text(opened.runtime.logs(spec.key, LogWanted())) == "up\n"
        assert CHILD not in [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]

    async def test_one_that_is_renewed_goes_on(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        stays, ends = leased(runtime_case), leased(runtime_case, task="ann/web/1")
        for spec in (stays, ends):
            opened.runtime.renew(spec.key, in_seconds(SOON))
            await opened.runtime.start(spec, 1)
        opened.runtime.renew(stays.key, in_seconds(LONG))
        await opened.end_of(ends.key)
        state = opened.runtime.look(stays.key)
        assert state is not None
        assert state.exit is None

    async def test_it_holds_without_a_borglet(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = leased(runtime_case)
        opened.runtime.renew(spec.key, in_seconds(SOON))
        await opened.runtime.start(spec, 1)
        await opened.runtime.close()
        again = await Watched(runtime_case.make()).open()
        await again.until(lambda: (state := again.runtime.look(spec.key)) is None or state.exit is not None)
        state = again.runtime.look(spec.key)
        assert state is not None
        assert state.exit is not None
        assert state.exit.lapsed
        await again.runtime.close()

    @pytest.mark.parametrize("left", [None, 0.0])
    async def test_without_one_nothing_starts(
        self, runtime_case: RuntimeCase, opened: Watched, left: float | None
    ) -> None:
        """A start that was held up for long must not begin what may run elsewhere by now."""
        spec = leased(runtime_case)
        if left is not None:
            opened.runtime.renew(spec.key, in_seconds(left))
        with pytest.raises(StartFailed, match="lease") as caught:
            await opened.runtime.start(spec, 1)
        assert not caught.value.permanent
        opened.runtime.renew(spec.key, in_seconds(LONG))
        assert (await opened.runtime.start(spec, 1)).exit is None

    async def test_a_run_without_a_lease_needs_none(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        spec = runtime_case.spec(Program(runs_seconds=0))
        await opened.runtime.start(spec, 1)
        assert not (await opened.end_of(spec.key)).lapsed
