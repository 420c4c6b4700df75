"""Machines that answer late, or with much that is no answer: a part of ``bad_days``."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from borgish.wire.api import Accepted, CordonRequest
from tests.bench.apps import cpu_seconds
from tests.bench.bad_days_beside import seen
from tests.bench.cli import LOOK_SECONDS, MIB
from tests.bench.farm import FORKED
from tests.bench.figure import Figure
from tests.bench.load import UNLIMITED, UP_SECONDS_MAX, Load, Machines, loaded
from tests.bench.sizes import Sizes

WELL, SLOW, LOUD = "well", "slow", "loud"
"""How they answer: as all machines do, one of them late, or one of them with much that is no answer."""
SLOW_SECONDS = 4.0
"""As long as a poll may take at the most, as cells are shipped: two seconds held, and two more."""
GARBAGE = b'{"machine":"m1","report":{"attempts":[' + b"{}," * (10 * MIB // 3)
"""10 MiB, less than an answer may have, which are no answer."""
_KINDS = (WELL, SLOW, LOUD)
_BAD = {"m0": SLOW, "m1": LOUD}


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield what others wait for beside such machines, and without them, and the master's size and cpu."""
    made = list[_SomeBad]()

    def make(names: list[str], secret: str, log: Path) -> _SomeBad:
        made.append(_SomeBad(names, secret, log))
        return made[0]

    with (
        TemporaryDirectory(prefix="borgish-bench-") as place,
        loaded(Path(place), sizes.bad_machines, UNLIMITED, made=make) as load,
    ):
        for machine in _BAD:  # what ran there would wait for its machine, whatever the master does
            load.master.client.post(f"/v1/machines/{machine}/cordon", CordonRequest("bench"), Accepted)
        for kind in _KINDS:
            with made[0].answering(kind):
                yield from _beside(load, f"bad_days.machines.{kind}", sizes)


def _beside(load: Load, name: str, sizes: Sizes) -> Iterator[Figure]:
    before, began = cpu_seconds(load.master.pid), time.perf_counter()
    waits = seen(load, sizes.bad_probes)
    cpu = (cpu_seconds(load.master.pid) - before) / (time.perf_counter() - began)
    yield from waits.figures(name)
    yield Figure(f"{name}.master_cpu", "ms/s", [1000 * cpu], note="with what others ask for")
    yield Figure(f"{name}.master_rss", "MiB", [load.master_rss()])


class _SomeBad(Machines):
    """Machines of which one may answer late, and one with garbage."""

    def __init__(self, names: list[str], secret: str, log: Path) -> None:
        super().__init__(names, secret, log)
        self._kind, self._bad_answers = FORKED.Value("i", 0), FORKED.Value("q", 0)

    @contextmanager
    def answering(self, kind: str) -> Iterator[None]:
        """Have one of them be bad in this way; it has been asked before this begins."""
        self._kind.value, self._bad_answers.value = _KINDS.index(kind), 0
        began = time.perf_counter()
        while kind != WELL and not self._bad_answers.value:
            if time.perf_counter() - began > UP_SECONDS_MAX:
                raise TimeoutError(f"no {kind} machine was polled")
            time.sleep(LOOK_SECONDS)
        yield
        self._kind.value = _KINDS.index(WELL)

    async def answer(self, name: str, asked: bytes) -> bytes:
        kind = _BAD.get(name)
        if kind is not None and kind == _KINDS[self._kind.value]:
            self._bad_answers.value += 1
            if kind == LOUD:
                return GARBAGE
            await asyncio.sleep(SLOW_SECONDS)
        return await super().answer(name, asked)
