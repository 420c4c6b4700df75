"""What stays of attempts that were let go: their output, for a while, and no more than that."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from borgish.borglet.ledger import Ledger
from borgish.borglet.opening import Factories
from borgish.borglet.runtimes.docker.runtime import DockerRuntime
from borgish.borglet.runtimes.leftovers import KEEP_NOTHING, Retention
from borgish.borglet.stop_all import stop_all
from borgish.clock import Now, SystemClock
from borgish.vocabulary import Runtime
from borgish.wire.link import LogWanted
from tests.integration.docker.engine_between import EngineBetween
from tests.integration.docker.machine import KEY, SLEEP, Machine, ended, impatient, until

pytestmark = pytest.mark.docker

SOON_SECONDS = 0.1
DAY_SECONDS = 24 * 3600.0


class AheadClock:
    """The system's time, and then some."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def now(self) -> Now:
        now = SystemClock().now()
        return msgspec.structs.replace(now, wall=now.wall + self.ahead_seconds)


async def text(parts: AsyncIterator[bytes]) -> str:
    return b"".join([part async for part in parts]).decode()


async def output(runtime: DockerRuntime, key: str = KEY, *, previous: bool = False) -> str:
    return await text(runtime.logs(key, LogWanted(previous=previous)))


async def let_go(machine: Machine, runtime: DockerRuntime, *words: str, attempt: int = 7) -> str:
    """Run an attempt once for each word, which it says, and let it go; return its key."""
    for run, word in enumerate(words, 1):
        spec = machine.spec("echo", word, attempt=attempt)
        await runtime.start(spec, run)
        await ended(runtime, spec.key)
    await runtime.forget(spec.key)
    return spec.key


async def test_the_output_of_what_was_let_go_can_be_read(machine: Machine) -> None:
    runtime = await machine.runtime()
    key = await let_go(machine, runtime, "one", "two", "three")
    assert await output(runtime, key) == "three\n"
    assert await output(runtime, key, previous=True) == "two\n"
    assert await text(runtime.logs(key, LogWanted(follow=True, tail=1))) == "three\n"
    assert runtime.look(key) is None


async def test_one_run_has_none_before(machine: Machine) -> None:
    runtime = await machine.runtime()
    key = await let_go(machine, runtime, "one")
    assert await output(runtime, key, previous=True) == ""


async def test_a_borglet_that_starts_anew_finds_the_output_and_no_attempt(machine: Machine) -> None:
    first = await machine.runtime()
    key = await let_go(machine, first, "one", "two")
    await first.close()
    later = await machine.runtime()
    assert later.look(key) is None
    assert (await output(later, key), await output(later, key, previous=True)) == ("two\n", "one\n")


async def test_what_was_let_go_is_not_reported_again(machine: Machine) -> None:
    news: list[str] = []
    runtime = DockerRuntime("integration", "m1", rules=machine.rules, mark=machine.mark)
    assert await runtime.open(news.append) == []
    await let_go(machine, runtime, "one")
    news.clear()
    await runtime._inventory.refresh()
    assert (news, runtime.look(KEY), await runtime.sample()) == ([], None, [])
    await runtime.close()
    later = DockerRuntime("integration", "m1", rules=machine.rules, mark=machine.mark)
    assert await later.open(news.append) == []
    await later.close()
    assert news == []


async def test_its_name_is_free_for_the_same_run(machine: Machine) -> None:
    runtime = await machine.runtime()
    await let_go(machine, runtime, "one")
    await let_go(machine, runtime, "two")
    assert await output(runtime) == "two\n"
    state = await runtime.start(machine.spec(*SLEEP), 1)
    assert state.exit is None
    assert await output(runtime) == ""


async def test_the_oldest_go_when_there_are_too_many(machine: Machine) -> None:
    runtime = await machine.runtime(keep=Retention(containers=2))
    keys = [await let_go(machine, runtime, f"word{n}", attempt=n) for n in (1, 2, 3, 4)]
    await until(lambda: len(machine.containers()) == 2)
    assert [await output(runtime, key) for key in keys] == ["", "", "word3\n", "word4\n"]


async def test_what_is_old_goes_at_the_next_look(machine: Machine) -> None:
    clock = AheadClock()
    runtime = await machine.runtime(look_seconds=SOON_SECONDS, clock=clock, keep=Retention(last=1))
    old = await let_go(machine, runtime, "old", attempt=1)
    clock.ahead_seconds = DAY_SECONDS - 600
    new = await let_go(machine, runtime, "new", attempt=2)
    await runtime._inventory.refresh()
    assert len(machine.containers()) == 2
    clock.ahead_seconds = DAY_SECONDS + 600
    await until(lambda: len(machine.containers()) == 1)
    assert (await output(runtime, old), await output(runtime, new)) == ("", "new\n")
    assert runtime.removed(old) == "it ended more than 24h ago"


async def test_what_is_old_goes_when_a_borglet_starts(machine: Machine) -> None:
    first = await machine.runtime()
    await let_go(machine, first, "old")
    await first.close()
    clock = AheadClock()
    clock.ahead_seconds = DAY_SECONDS + 600
    await machine.runtime(clock=clock, keep=Retention(last=0))
    await until(lambda: machine.containers() == {})


async def test_a_container_that_holds_much_does_not_stay(machine: Machine) -> None:
    runtime = await machine.runtime(keep=Retention(written_bytes=1024**2))
    for attempt, kib in ((1, 100), (2, 2000)):
        write = f"head -c {kib * 1024} /dev/zero >/tmp/big; echo done"
        spec = machine.spec("sh", "-c", write, attempt=attempt)
        await runtime.start(spec, 1)
        await ended(runtime, spec.key)
        await runtime.forget(spec.key)
    assert await output(runtime, "ann/web/0@1") == "done\n"
    assert await output(runtime, "ann/web/0@2") == ""
    assert len(machine.containers()) == 1


async def test_a_container_with_a_volume_does_not_stay(machine: Machine) -> None:
    """Nobody tells how much is in a volume, and it would stay with its container."""
    labels = {"borgish.owner": machine.mark}
    plain = machine.engine.containers.create(machine.image, "true", labels=labels)
    image = plain.commit(f"borgish-test/{machine.mark}", "1", changes="VOLUME /data")
    plain.remove()
    try:
        runtime = await machine.runtime()
        spec = machine.spec("echo", "one", image=f"borgish-test/{machine.mark}:1")
        await runtime.start(spec, 1)
        await ended(runtime, spec.key)
        await runtime.forget(spec.key)
        assert machine.containers() == {}
    finally:
        machine.engine.images.remove(image.id, force=True)


async def test_an_engine_that_hangs_meanwhile_only_delays_it(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/between.sock")
    between = EngineBetween(tmp_path / "between.sock")
    await between.open()
    runtime = await machine.runtime()
    await runtime.start(machine.spec("echo", "one"), 1)
    await ended(runtime, KEY)
    between.fall_silent()
    with impatient(runtime):
        await runtime.forget(KEY)
    assert runtime.look(KEY) is None
    between.speak_again()
    async with asyncio.timeout(60):  # it is found as before, or the engine has removed it after all
        while not all(name.startswith("borgish.gone.") for name in machine.containers()):
            await runtime._inventory.refresh()
            await runtime.forget(KEY)
    assert runtime.look(KEY) is None
    await runtime.close()
    await between.close()


async def test_what_somebody_removed_has_no_output(machine: Machine) -> None:
    runtime = await machine.runtime()
    key = await let_go(machine, runtime, "one")
    machine.engine.containers.get(next(iter(machine.containers()))).remove()
    assert await output(runtime, key) == ""
    await runtime._inventory.refresh()
    assert await output(runtime, key) == ""


async def test_what_runs_does_not_stay(machine: Machine) -> None:
    runtime = await machine.runtime()
    await runtime.start(machine.spec(*SLEEP), 1)
    await runtime.forget(KEY)
    assert machine.containers() == {}


async def test_a_machine_that_is_left_has_no_containers(machine: Machine, tmp_path: Path) -> None:
    """Neither those that were let go long before, nor those that end now."""
    machine.cell = f"left-{machine.mark}"  # its network goes, too, and others would miss theirs
    before = await machine.runtime()
    await let_go(machine, before, "one", "two")
    await before.start(machine.spec(*SLEEP, attempt=8), 1)
    await before.close()
    factories: Factories = {
        Runtime.DOCKER: lambda cell: DockerRuntime(
            cell, "m1", rules=machine.rules, mark=machine.mark, keep=KEEP_NOTHING
        )
    }
    ledger = Ledger(tmp_path, "m1")
    assert await stop_all(ledger, factories, machine.cell) == 1
    ledger.close()
    assert machine.containers() == {}
