"""What every runtime must do with programs that run beside an attempt's main one, as tests to inherit.

class TestKind(RunContract, LogContract, ProgramContract, SidecarContract): ...
"""

import msgspec
import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.spec.job import Program as Sidecar
from borgish.wire.link import AttemptSpec, LogWanted
from tests.contract.runtime.suite import DEADLINE_SECONDS, Program, RuntimeCase, Watched, as_shell, text


def grouped(
    case: RuntimeCase,
    beside: Program,
    main: Program = Program(),  # noqa: B008 - frozen
    **env: str,
) -> tuple[AttemptSpec, AttemptSpec]:
    """Return an attempt of two programs, and what the second of them needs."""
    sidecar = Sidecar("proxy", as_shell(beside), env=env)
    spec = case.spec(main, programs=(sidecar,))
    return spec, spec.beside(sidecar)


class SidecarContract:
    """Programs of one attempt: each by itself, in one place."""

    async def test_programs_run_side_by_side(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        main, beside = grouped(runtime_case, Program())
        first = await opened.runtime.start(main, 1)
        second = await opened.runtime.start(beside, 1)
        assert (first.key, second.key) == ("ann/web/0@7", "ann/web/0@7:proxy")
        assert first.pid != second.pid
        assert (opened.runtime.look(main.key), opened.runtime.look(beside.key)) == (first, second)
        assert (await opened.runtime.start(beside, 1)).pid == second.pid

    async def test_none_runs_without_the_main_program(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        main, beside = grouped(runtime_case, Program(), Program(runs_seconds=0))
        with pytest.raises(StartFailed, match="main program") as caught:
            await opened.runtime.start(beside, 1)
        assert not caught.value.permanent
        await opened.runtime.start(main, 1)
        await opened.end_of(main.key)
        with pytest.raises(StartFailed, match="main program"):
            await opened.runtime.start(beside, 1)
        assert opened.runtime.look(beside.key) is None

    @pytest.mark.parametrize("one", ["main", "beside"])
    @pytest.mark.parametrize("how", ["signal", "kill"])
    async def test_the_end_of_one_leaves_the_other(
        self, runtime_case: RuntimeCase, opened: Watched, one: str, how: str
    ) -> None:
        main, beside = grouped(runtime_case, Program())
        await opened.runtime.start(main, 1)
        await opened.runtime.start(beside, 1)
        ends, stays = (main, beside) if one == "main" else (beside, main)
        if how == "signal":
            await opened.runtime.signal(ends.key, "TERM")
        else:
            await opened.runtime.kill(ends.key)
        assert not (await opened.end_of(ends.key)).ok
        state = opened.runtime.look(stays.key)
        assert state is not None
        assert state.exit is None
        await opened.runtime.kill(stays.key)  # and it still can be ended
        assert not (await opened.end_of(stays.key)).ok

    async def test_one_is_started_again_by_itself(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        main, beside = grouped(runtime_case, Program(runs_seconds=0, exit_code=3))
        first = await opened.runtime.start(main, 1)
        await opened.runtime.start(beside, 1)
        assert (await opened.end_of(beside.key)).code == 3
        lasting = msgspec.structs.replace(beside, run=as_shell(Program()))
        second = await opened.runtime.start(lasting, 2)
        assert (second.run, second.exit) == (2, None)
        assert opened.runtime.look(main.key) == first

    async def test_all_are_adopted(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        main, beside = grouped(runtime_case, Program())
        states = {await opened.runtime.start(main, 2), await opened.runtime.start(beside, 5)}
        later = await Watched(runtime_case.make()).open()
        assert set(later.found) == states
        await later.runtime.kill(beside.key)
        assert not (await later.end_of(beside.key)).ok
        assert (await later.runtime.start(beside, 6)).exit is None  # it knows the main program, too
        await later.runtime.close()

    async def test_each_has_its_own_output(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        main, beside = grouped(runtime_case, Program(("of the other",), 0), Program(("of the main one",)))
        await opened.runtime.start(main, 1)
        await opened.runtime.start(beside, 1)
        await opened.end_of(beside.key)
        logs = opened.runtime.logs(beside.key, LogWanted())
        assert await text(logs) == "of the other\n"
        await opened.has_said(main.key, b"of the main one")
        await opened.runtime.kill(main.key)
        await opened.end_of(main.key)
        logs = opened.runtime.logs(main.key, LogWanted())
        assert await text(logs) == "of the main one\n"

    async def test_a_command_runs_beside_the_one_that_is_named(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        main, beside = grouped(runtime_case, Program(), COLOUR="red")
        await opened.runtime.start(main, 1)
        await opened.runtime.start(beside, 1)
        command = ("sh", "-c", "echo $BORGISH_TASK $COLOUR")
        output, *_ = await opened.runtime.exec(beside.key, command, DEADLINE_SECONDS)
        assert output == b"ann/web/0 red\n"
        output, *_ = await opened.runtime.exec(main.key, command, DEADLINE_SECONDS)
        assert output == b"ann/web/0\n"

    async def test_use_is_told_of_each(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        main, beside = grouped(runtime_case, Program())
        await opened.runtime.start(main, 1)
        await opened.runtime.start(beside, 1)
        usages = await opened.runtime.sample()
        assert [(usage.task, usage.attempt) for usage in usages] == [("ann/web/0", 7)] * 2
        assert all(usage.ram_bytes > 0 for usage in usages)

    async def test_they_have_one_network(self, runtime_case: RuntimeCase, opened: Watched) -> None:
        main, beside = grouped(runtime_case, Program())
        await opened.runtime.start(main, 1)
        await opened.runtime.start(beside, 1)
        command = ("readlink", "/proc/self/ns/net")
        first, code, _ = await opened.runtime.exec(main.key, command, DEADLINE_SECONDS)
        second, *_ = await opened.runtime.exec(beside.key, command, DEADLINE_SECONDS)
        assert (code, first) == (0, second)

    async def test_forgotten_ones_are_not_found_again(
        self, runtime_case: RuntimeCase, opened: Watched
    ) -> None:
        main, beside = grouped(runtime_case, Program())
        for spec in (main, beside):
            await opened.runtime.start(spec, 1)
        for spec in (main, beside):
            await opened.runtime.kill(spec.key)
            await opened.end_of(spec.key)
            await opened.runtime.forget(spec.key)
        later = await Watched(runtime_case.make()).open()
        assert later.found == []
        await later.runtime.close()
