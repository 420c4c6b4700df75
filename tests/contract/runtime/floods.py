"""What a runtime must do with programs that write more than they may, as tests to inherit: each floods the
disk beside a victim, which must not notice.

class TestKind(RunContract, LogContract, ProgramContract, DiskContract): ...
"""

import pytest

from borgish.borglet.runtimes import disk
from borgish.resources import Resources
from borgish.spec.job import Program as Sidecar
from borgish.wire.link import AttemptSpec
from tests.contract.runtime.suite import (
    DEADLINE_SECONDS,
    Program,
    RuntimeCase,
    Watched,
)

MIB = 1024**2
LIMIT = Resources(100, 64 * MIB, 2 * MIB)
WRITABLE = "[ -w . ] || cd /tmp; "
FLOODS = {
    "bytes": "dd if=/dev/zero of=big bs=1M count=6; sleep 300",
    "files": "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); : > f$i; done; sleep 300",
    "folders": "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); mkdir f$i; done; sleep 300",
    "deleted": "exec 3> big; rm big; dd if=/dev/zero bs=1M count=6 >&3; sleep 300",
    "hidden": "mkdir -p a/.b; dd if=/dev/zero of=a/.b/.big bs=1M count=6; sleep 300",
}


def shell(script: str) -> tuple[str, ...]:
    return "sh", "-c", WRITABLE + script


async def lives_well(opened: Watched, victim: AttemptSpec) -> bool:
    """Return whether a program runs on, and can write."""
    state = opened.runtime.look(victim.key)
    command = shell("echo fine > note && cat note")
    output, code, _ = await opened.runtime.exec(victim.key, command, DEADLINE_SECONDS)
    return state is not None and state.exit is None and (output, code) == (b"fine\n", 0)


class DiskContract:
    """Programs are held to their disk."""

    @pytest.fixture(autouse=True)
    def _looked_at_often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(disk, "LOOK_SECONDS", 0.05)
        monkeypatch.setattr(disk, "BUSY_SHARE_MAX", 1.0)

    @pytest.mark.parametrize("flood", FLOODS)
    async def test_who_floods_the_disk_is_ended_and_its_neighbour_is_left_alone(
        self, runtime_case: RuntimeCase, opened: Watched, flood: str
    ) -> None:
        if flood in ("files", "folders") and "as the engine counts" in str(opened.runtime.measures()):
            pytest.skip("this engine's layers cannot be looked at, and it counts bytes alone")
        victim = runtime_case.spec(Program(), task="ann/victim/0", resources=LIMIT)
        spec = runtime_case.spec(Program(), run=shell(FLOODS[flood]), resources=LIMIT)
        await opened.runtime.start(victim, 1)
        await opened.runtime.start(spec, 1)
        ended = await opened.end_of(spec.key)
        assert ended.signal == 9 or ended.code == 137
        assert ended.reason.startswith("its disk: ")
        assert ended.reason.endswith(" written, limit 2MiB; raise resources.disk")
        assert not ended.oom
        assert await lives_well(opened, victim)

    async def test_what_is_within_its_disk_runs_on(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        """Also what comes and goes, as long as it is not all there at once."""
        script = "for i in 1 2 3 4 5 6; do dd if=/dev/zero of=part bs=1M count=1; rm part; done; exit 7"
        spec = runtime_case.spec(Program(), run=shell(script), resources=LIMIT)
        await opened.runtime.start(spec, 1)
        assert (await opened.end_of(spec.key)).code == 7

    async def test_one_that_was_adopted_is_held_to_it(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        script = "until [ -e go ]; do sleep 0.02; done; " + FLOODS["bytes"]
        spec = runtime_case.spec(Program(), run=shell(script), resources=LIMIT)
        await opened.runtime.start(spec, 1)
        await opened.runtime.close()
        later = await Watched(runtime_case.make()).open()
        await later.runtime.exec(spec.key, shell("touch go"), DEADLINE_SECONDS)
        assert "limit 2MiB" in (await later.end_of(spec.key)).reason
        await later.runtime.close()

    async def test_a_program_beside_the_main_one_is_held_to_it(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        sidecar = Sidecar("proxy", shell(FLOODS["bytes"]))
        main = runtime_case.spec(Program(), programs=(sidecar,), resources=LIMIT)
        beside = main.beside(sidecar)
        await opened.runtime.start(main, 1)
        await opened.runtime.start(beside, 1)
        assert "limit 2MiB" in (await opened.end_of(beside.key)).reason
