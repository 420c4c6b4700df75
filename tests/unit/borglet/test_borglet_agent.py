"""The agent with a runtime made up here: order, bounds, held polls, durability, trouble."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from borgish.borglet import opening
from borgish.borglet.agent import Agent
from borgish.borglet.ledger import Ledger
from borgish.borglet.runtimes.base import Input, RunState, StartFailed, Write
from borgish.clock import SystemClock
from borgish.errors import Conflict, NotFound, Unreachable
from borgish.resources import Resources
from borgish.spec.job import Restart, Stop
from borgish.vocabulary import Ending, Phase, RestartPolicy, Runtime
from borgish.wire.link import (
    Assignment,
    AttemptReport,
    AttemptSpec,
    ConditionKind,
    ExecRequest,
    Exit,
    Facts,
    LogWanted,
    PollReply,
    PollRequest,
    StopOrder,
    Terminal,
    Usage,
)

FACTS = Facts(Resources(1000, 2**30, 2**30), {}, (), 20000, 20999)
PATIENCE_SECONDS = 60.0


class MadeUp:
    """A TaskRuntime whose programs are entries of a dict; ``gate`` closed holds up starts."""

    def __init__(self, kind: Runtime = Runtime.FAKE) -> None:
        self.kind = kind
        self.runs: dict[str, RunState] = {}
        self.calls: list[str] = []
        self.renewed: dict[str, float] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.slow_signal = asyncio.Event()
        self.slow_signal.set()
        self.starting = self.starting_most = 0
        self.faults: list[BaseException] = []
        self.open_fault = ""
        self.bad = ""
        self.gone: dict[str, str] = {}
        self.here: dict[str, str] = {}

    async def open(self, changed: Callable[[str], None]) -> list[RunState]:
        if self.open_fault:
            raise Unreachable(self.open_fault)
        self.changed = changed
        return list(self.runs.values())

    async def start(self, spec: AttemptSpec, run: int) -> RunState:
        self.calls.append(f"start {run}")
        self.starting += 1
        self.starting_most = max(self.starting_most, self.starting)
        await self.gate.wait()
        self.starting -= 1
        if self.faults:
            raise self.faults.pop(0)
        self.runs[spec.key] = RunState(spec.key, run, 40 + run, SystemClock().now().wall)
        return self.runs[spec.key]

    def renew(self, key: str, until: float) -> None:
        self.renewed[key] = until

    def look(self, key: str) -> RunState | None:
        return self.runs.get(key)

    def end(self, key: str, exit_: Exit) -> None:
        state = self.runs[key]
        self.runs[key] = RunState(key, state.run, state.pid, state.started_at, exit_)
        self.changed(key)

    async def signal(self, key: str, signal: str) -> None:
        self.calls.append(f"signal {signal}")
        await self.slow_signal.wait()

    async def kill(self, key: str) -> None:
        self.calls.append("kill")

    async def forget(self, key: str, keep_seconds: float = 0.0) -> None:
        self.calls.append("forget")
        self.runs.pop(key, None)

    async def sample(self) -> list[Usage]:
        return []

    async def logs(self, key: str, wanted: LogWanted) -> AsyncIterator[bytes]:
        if key in self.runs:
            yield b"hello\n"

    async def exec(
        self,
        key: str,
        run: tuple[str, ...],
        timeout_seconds: float,
        stdin: Input | None = None,
        write: Write | None = None,
        terminal: Terminal | None = None,
    ) -> tuple[bytes, int, bool]:
        return b"said", 0, False

    def images(self) -> dict[str, str]:
        return self.here

    def removed(self, key: str) -> str:
        return self.gone.get(key, "")

    def measures(self) -> dict[str, str]:
        return {}

    def trouble(self) -> str:
        return self.bad

    async def close(self) -> None:
        self.calls.append("close")


def given(runtime: MadeUp, _cell: str) -> MadeUp:
    return runtime


class Bench:
    def __init__(self, folder: Path, *runtimes: MadeUp) -> None:
        self.folder = folder
        self.runtime = runtimes[0] if runtimes else MadeUp()
        kinds = {r.kind: r for r in runtimes or (self.runtime,)}
        self.ledger = Ledger(folder, "m1")
        self.agent = Agent(
            "m1",
            "boot",
            "i1",
            FACTS,
            state=folder,
            ledger=self.ledger,
            factories={kind: partial(given, runtime) for kind, runtime in kinds.items()},
            clock=SystemClock(),
        )
        self.generation = 0
        self.reply: PollReply | None = None

    async def poll(
        self, *specs: AttemptSpec, stop: tuple[StopOrder, ...] = (), wait_seconds: float = 0.0
    ) -> PollReply:
        order = None
        if specs or stop:
            self.generation += 1
            order = Assignment(self.generation, specs, stop)
        self.reply = await self.agent.poll(self.asked(wait_seconds, order))
        return self.reply

    def asked(self, wait_seconds: float = 0.0, order: Assignment | None = None) -> PollRequest:
        seen, instance = (self.reply.report_generation, self.reply.instance) if self.reply else (0, "")
        return PollRequest("local", 1, 1, self.generation, seen, instance, wait_seconds, order)

    def said(self, index: int = 0) -> AttemptReport:
        return next(r for r in self.agent.core.report() if r.task == f"ann/web/{index}")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    await bench.agent.begin("local")
    yield bench
    await bench.agent.close()


def make_spec(
    index: int = 0, policy: RestartPolicy = RestartPolicy.ALWAYS, runtime: Runtime = Runtime.FAKE
) -> AttemptSpec:
    return AttemptSpec(
        task=f"ann/web/{index}",
        attempt=7,
        run=("serve",),
        env={},
        runtime=runtime,
        resources=Resources(cpu_millis=1),
        restart=Restart(policy),
        stop=Stop("TERM", 0.05),
    )


async def until(fulfilled: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not fulfilled():
            await asyncio.sleep(0.001)


KEY = make_spec().key


async def test_a_program_that_ends_is_started_again_in_the_same_breath(bench: Bench) -> None:
    await bench.poll(make_spec())
    await until(lambda: bench.said().phase is Phase.UP)
    bench.runtime.end(KEY, Exit(code=1))
    await asyncio.sleep(0)
    assert bench.runtime.calls == ["start 1", "start 2"]


async def test_a_kill_under_way_never_meets_the_run_after(bench: Bench) -> None:
    await bench.poll(make_spec())
    await until(lambda: bench.said().phase is Phase.UP)
    bench.runtime.slow_signal.clear()
    await bench.poll(make_spec(1), stop=(StopOrder("ann/web/0", 7),))
    await until(lambda: "signal TERM" in bench.runtime.calls)
    await until(lambda: "was killed" in bench.said().reason)
    assert "kill" not in bench.runtime.calls, "the kill waits for the signal"
    bench.runtime.slow_signal.set()
    await until(lambda: "kill" in bench.runtime.calls)


async def test_starts_of_containers_are_bounded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, MadeUp(Runtime.DOCKER))
    await bench.agent.begin("local")
    bench.runtime.gate.clear()
    await bench.poll(*(make_spec(i, runtime=Runtime.DOCKER) for i in range(30)))
    await until(lambda: bench.runtime.starting == 8)
    bench.runtime.gate.set()
    await until(lambda: len(bench.runtime.runs) == 30)
    assert bench.runtime.starting_most == 8
    await bench.agent.close()


async def test_failed_starts_are_told_whatever_was_raised(bench: Bench) -> None:
    bench.runtime.faults = [StartFailed("no command 'x'", permanent=True), OSError(5, "bad"), KeyError("k")]
    await bench.poll(make_spec())
    await until(lambda: "no command 'x'" in bench.said().reason or "bad" in bench.said().reason)
    await until(lambda: bench.said().phase is Phase.STARTING and not bench.runtime.faults[2:])


async def test_a_poll_is_held_until_there_is_news(bench: Bench) -> None:
    await bench.poll(make_spec(policy=RestartPolicy.NEVER))
    await until(lambda: bench.said().phase is Phase.UP)
    await bench.poll()
    held = asyncio.create_task(bench.agent.poll(bench.asked(30.0)))
    await asyncio.sleep(0.01)
    assert not held.done()
    bench.runtime.end(KEY, Exit(code=0))
    reply = await asyncio.wait_for(held, PATIENCE_SECONDS)
    assert reply.report is not None
    assert reply.report.attempts[0].ended is Ending.FINISH
    assert not bench.ledger.owes_sync, "an end is durable before it is told"


async def test_a_newer_poll_lets_the_held_one_go_and_so_does_the_end(bench: Bench) -> None:
    await bench.poll()
    first = asyncio.create_task(bench.agent.poll(bench.asked(30.0)))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(bench.agent.poll(bench.asked(30.0)))
    assert (await asyncio.wait_for(first, PATIENCE_SECONDS)).report is None
    assert not second.done()
    bench.agent.end_polls()
    await asyncio.wait_for(second, PATIENCE_SECONDS)


async def test_a_poll_without_news_is_answered_when_its_time_is_over(bench: Bench) -> None:
    await bench.poll()
    assert (await asyncio.wait_for(bench.poll(wait_seconds=0.02), PATIENCE_SECONDS)).report is None


async def test_the_master_of_another_cell_is_refused(bench: Bench) -> None:
    with pytest.raises(Conflict, match="is in cell 'local', not in 'other'"):
        await bench.agent.poll(PollRequest("other", 1, 1, 0))


async def test_an_ended_attempt_leaves_runtime_and_ledger(bench: Bench) -> None:
    await bench.poll(make_spec(policy=RestartPolicy.NEVER))
    await until(lambda: bench.said().phase is Phase.UP)
    bench.runtime.end(KEY, Exit(code=0))
    await bench.poll()
    assert KEY in bench.ledger.entries
    await bench.poll(make_spec(1))
    await until(lambda: "forget" in bench.runtime.calls and KEY not in bench.ledger.entries)


async def test_a_ledger_that_cannot_be_written_stops_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(bench.ledger, "append", full)
        await bench.poll(make_spec())
        await until(lambda: bench.said().phase is Phase.UP)
        bench.agent._look_around()
        conditions = bench.agent.core.conditions
        assert [c.kind for c in conditions] == [ConditionKind.DISK_PRESSURE]
        assert "No space left" in conditions[0].text
    bench.agent._mend_ledger()
    bench.agent._look_around()
    assert bench.agent.core.conditions == ()


async def test_trouble_of_a_runtime_is_a_condition(bench: Bench) -> None:
    bench.runtime.bad = "the engine hangs"
    bench.agent._look_around()
    (condition,) = bench.agent.core.conditions
    assert (condition.kind, condition.about) == (ConditionKind.RUNTIME_UNHEALTHY, "fake")


async def test_the_images_of_a_runtime_are_facts(bench: Bench) -> None:
    assert bench.agent.core.facts.images == {}
    bench.runtime.here = {"busybox:1": "amd64"}
    bench.agent._look_around()
    assert bench.agent.core.facts.images == {"busybox:1": "amd64"}


async def test_a_runtime_that_does_not_open_is_left_out_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "AGAIN_SECONDS", 0.01)
    engine = MadeUp(Runtime.DOCKER)
    engine.open_fault = "no engine"
    bench = Bench(tmp_path, MadeUp(), engine)
    await bench.agent.begin("local")
    assert set(bench.agent.core.facts.runtimes) == {Runtime.FAKE}
    await bench.poll(make_spec(runtime=Runtime.DOCKER))
    assert bench.said().reason == "waits for the docker runtime of this machine"
    engine.open_fault = ""
    await until(lambda: bench.said().phase is Phase.UP)
    assert set(bench.agent.core.facts.runtimes) == {Runtime.DOCKER, Runtime.FAKE}
    await bench.agent.close()


async def test_containers_wait_for_the_name_of_the_cell(tmp_path: Path) -> None:
    bench = Bench(tmp_path, MadeUp(), MadeUp(Runtime.DOCKER))
    await bench.agent.begin("")
    assert bench.agent.core.facts.runtimes == (Runtime.FAKE,)
    bench.agent.joined("local")
    await until(lambda: Runtime.DOCKER in bench.agent.core.facts.runtimes)
    await bench.agent.close()


@pytest.mark.parametrize(("run", "previous"), [(0, False), (4, True), (5, False), (6, False)])
async def test_output_of_a_run_is_that_of_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, run: int, previous: bool
) -> None:
    bench.runtime.runs[KEY] = RunState(KEY, 5, 45, SystemClock().now().wall)
    asked: list[bool] = []

    async def logs(_key: str, wanted: LogWanted) -> AsyncIterator[bytes]:
        asked.append(wanted.previous)
        yield b"x"

    monkeypatch.setattr(bench.runtime, "logs", logs)
    assert [each async for each in bench.agent.logs(KEY, LogWanted(follow=True), run=run)]
    assert asked == [previous]
    with pytest.raises(NotFound, match="removed the output of run 3"):
        await anext(bench.agent.logs(KEY, LogWanted(follow=True), run=3))


async def test_exec_and_logs_are_for_what_is_here(bench: Bench) -> None:
    await bench.poll(make_spec(policy=RestartPolicy.NEVER))
    await until(lambda: bench.said().phase is Phase.UP)
    request = ExecRequest("ann/web/0", 7, ("ls",))
    assert (await bench.agent.exec(request)).output == b"said"
    logs = bench.agent.logs(KEY, LogWanted())
    assert [chunk async for chunk in logs] == [b"hello\n"]
    bench.runtime.end(KEY, Exit(code=0))
    with pytest.raises(NotFound, match="does not run"):
        await bench.agent.exec(request)
    with pytest.raises(NotFound, match="has no output"):
        await anext(bench.agent.logs("ann/web/9@9", LogWanted()))


@pytest.mark.parametrize("earlier", [b"before\n", b""])
async def test_output_of_what_was_let_go_is_that_of_its_last_run_that_wrote(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, earlier: bytes
) -> None:
    async def logs(_key: str, wanted: LogWanted) -> AsyncIterator[bytes]:
        yield earlier if wanted.previous else b""

    monkeypatch.setattr(bench.runtime, "logs", logs)
    found = bench.agent.logs("ann/web/9@9", LogWanted())
    assert b"".join([chunk async for chunk in found]) == earlier


async def test_output_that_was_removed_is_reported_with_the_reason(bench: Bench) -> None:
    bench.runtime.gone["ann/web/9@9"] = "it ended more than 24h ago"
    with pytest.raises(
        NotFound, match="m1 has removed the output of ann/web/9@9: it ended more than"
    ) as caught:
        await anext(bench.agent.logs("ann/web/9@9", LogWanted()))
    assert "[keep]" in caught.value.hint
