"""One machine's containers, for tests that look at a real engine from both sides."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import docker
import msgspec

from borgish.borglet.runtimes.docker.host import Rules
from borgish.borglet.runtimes.docker.runtime import DockerRuntime
from borgish.borglet.runtimes.leftovers import Retention
from borgish.borglet.runtimes.secrets import NO_SECRETS, SecretFolders
from borgish.clock import Clock
from borgish.resources import Resources
from borgish.spec.job import Restart, Stop
from borgish.vocabulary import Runtime
from borgish.wire.link import AttemptSpec, Exit
from tests.fixtures_docker import ANY_ENGINE

PATIENCE_SECONDS = 120.0
SLEEP = ("sleep", "1000")
KEY = "ann/web/0@7"
GATE = "until [ -e /tmp/go ]; do sleep 0.02; done; "


@contextmanager
def impatient(runtime: DockerRuntime) -> Iterator[None]:
    """Give up soon on an engine that does not answer."""
    clients = (runtime._engine._quick, runtime._engine._slow)
    before = [client.timeout for client in clients]
    for client in clients:
        client.timeout = 0.5
    yield
    for client, seconds in zip(clients, before, strict=True):
        client.timeout = seconds


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


class Machine:
    """One machine's containers, and the runtimes that look at them."""

    def __init__(self, mark: str, image: str, engine: docker.DockerClient, rules: Rules = ANY_ENGINE) -> None:
        self.rules, self.cell = rules, "integration"
        self.mark, self.image, self.engine = mark, image, engine
        self._open: list[DockerRuntime] = []

    async def runtime(
        self,
        look_seconds: float = 60.0,
        *,
        clock: Clock | None = None,
        keep: Retention | None = None,
        secrets: SecretFolders = NO_SECRETS,
    ) -> DockerRuntime:
        runtime = DockerRuntime(
            self.cell,
            "m1",
            mark=self.mark,
            rules=self.rules,
            look_seconds=look_seconds,
            clock=clock,
            keep=keep or Retention(),
            secrets=secrets,
        )
        self._open.append(runtime)
        await runtime.open(lambda _: None)
        return runtime

    async def close(self) -> None:
        for runtime in self._open:
            await runtime.close()

    def spec(self, *run: str, ram_bytes: int = 64 * 1024**2, **more: object) -> AttemptSpec:
        spec = AttemptSpec(
            task="ann/web/0",
            attempt=7,
            image=self.image,
            run=run,
            env={},
            runtime=Runtime.DOCKER,
            resources=Resources(cpu_millis=100, ram_bytes=ram_bytes),
            restart=Restart(),
            stop=Stop(),
        )
        return msgspec.structs.replace(spec, **more)

    def containers(self) -> dict[str, str]:
        """Return the state of each container here, by name."""
        found = self.engine.api.containers(all=True, filters={"label": f"borgish.owner={self.mark}"})
        return {row["Names"][0].removeprefix("/"): row["State"] for row in found}


async def let_it_go_on(runtime: DockerRuntime, key: str) -> None:
    """Open the gate of a program that waits for it."""
    assert (await runtime.exec(key, ("touch", "/tmp/go"), PATIENCE_SECONDS))[1] == 0


async def ended(runtime: DockerRuntime, key: str) -> Exit:
    """Wait until the latest run of an attempt has ended, and return how."""
    await until(lambda: (state := runtime.look(key)) is not None and state.exit is not None)
    state = runtime.look(key)
    assert state is not None
    assert state.exit is not None
    return state.exit
