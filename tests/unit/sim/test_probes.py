"""Every kind of health check is answered by programs on a virtual clock, and so is who connects to a port."""

from collections.abc import AsyncIterator, Iterator

import pytest

from borgish.borglet import health
from borgish.borglet.actions import Probe
from borgish.borglet.forwarding import forward
from borgish.errors import Unreachable
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, FaultInjector
from borgish.sim.loop import VirtualLoop
from borgish.sim.runtime import ANSWER, SICK_AFTER_SECONDS, Programs, SimRuntime, Watcher
from borgish.spec.job import Health, Restart, Stop
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec

HTTP, TCP, COMMAND = Health(http="/", port="main"), Health(tcp=True, port="main"), Health(command=("check",))
PORT = 20000


class Bench:
    """A program that runs, and what asks it."""

    def __init__(self, does: str) -> None:
        self.loop = VirtualLoop()
        injector = FaultInjector(0, NO_FAULTS)
        self.programs = Programs(self.loop, injector, "m1")
        self.runtime = SimRuntime("m1", self.programs, injector, Watcher())
        self.spec = AttemptSpec(
            "ann/web/0",
            1,
            ("serve",),
            {},
            Runtime.FAKE,
            Resources(),
            Restart(),
            Stop(),
            ports={"main": PORT},
            labels={"sim": does},
        )
        self.programs.start(self.spec, 1)

    def ask(self, probe: Health, port: int = PORT) -> str:
        asked = self.loop.world.spawn(
            health.ask(Probe(self.spec.key, 1, probe, port), self.runtime, self.programs.connect)
        )
        self.loop.run_until(self.loop.now().mono + 1.0)
        return asked.result()


@pytest.fixture(params=["service", "sick"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(request.param)
    yield bench
    bench.loop.close()
    assert bench.loop.faults == []


@pytest.mark.parametrize("probe", [HTTP, TCP, COMMAND], ids=["http", "tcp", "command"])
def test_a_program_answers_while_it_is_well(bench: Bench, probe: Health) -> None:
    assert bench.ask(probe) == ""
    bench.loop.run_until(SICK_AFTER_SECONDS + 1.0)
    is_sick = bench.spec.labels["sim"] == "sick"
    assert bool(bench.ask(probe)) is is_sick


@pytest.mark.parametrize("bench", ["service"], indirect=True)
@pytest.mark.parametrize("probe", [HTTP, TCP], ids=["http", "tcp"])
def test_nobody_answers_where_no_program_listens(bench: Bench, probe: Health) -> None:
    assert bench.ask(probe, PORT + 1) == f"port {PORT + 1}: Connection refused"
    bench.programs.stop(bench.spec.key, 9)
    bench.loop.run_until(2.0)
    assert bench.ask(probe) == f"port {PORT}: Connection refused"


class Typed:
    """What somebody sends: two pieces."""

    async def pieces(self) -> AsyncIterator[bytes]:
        yield b"GET / HTTP/1.1\r\n"
        yield b"\r\n"

    async def sizes(self) -> AsyncIterator[tuple[int, int]]:
        return
        yield 0, 0

    def close(self) -> None:
        pass


@pytest.mark.parametrize("bench", ["service"], indirect=True)
def test_a_connection_is_carried_to_a_program(bench: Bench) -> None:
    got = bytearray()

    async def write(data: bytes) -> None:
        got.extend(data)

    carried = bench.loop.world.spawn(forward(PORT, bench.programs.connect, Typed(), write))
    refused = bench.loop.world.spawn(forward(PORT + 1, bench.programs.connect, Typed(), write))
    bench.loop.run_until(1.0)
    carried.result()
    assert bytes(got) == ANSWER
    assert isinstance(refused.exception(), Unreachable)
