"""The docker runtime and what only a real engine shows: limits, leftovers, other hands, silence."""

import asyncio
from pathlib import Path

import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.docker import engine as engine_calls
from borgish.borglet.runtimes.docker.container import Owner, Place, container_config
from borgish.borglet.runtimes.docker.runtime import DockerRuntime
from borgish.errors import Conflict, Unreachable
from borgish.wire.link import LogWanted
from tests.integration.docker.engine_between import EngineBetween
from tests.integration.docker.machine import (
    GATE,
    PATIENCE_SECONDS,
    SLEEP,
    Machine,
    ended,
    impatient,
    let_it_go_on,
    until,
)
from tests.ports import free_port

pytestmark = pytest.mark.docker

SOON_SECONDS = 0.1
STATUS = ("grep", "-E", "CapEff|NoNewPrivs", "/proc/self/status")


async def test_an_image_that_is_not_here(machine: Machine) -> None:
    runtime = await machine.runtime()
    with pytest.raises(StartFailed, match="no image nowhere/nothing:9") as caught:
        await runtime.start(machine.spec(*SLEEP, image="nowhere/nothing:9"), 1)
    assert not caught.value.permanent  # somebody may bring it
    assert "docker pull nowhere/nothing:9" in caught.value.hint
    assert machine.containers() == {}


async def test_the_memory_limit_is_hit(machine: Machine) -> None:
    runtime = await machine.runtime()
    # Not in its first moments: the engine begins to watch for this only after the start.
    spec = machine.spec("sh", "-c", GATE + "tail /dev/zero", ram_bytes=16 * 1024**2)
    await runtime.start(spec, 1)
    await let_it_go_on(runtime, spec.key)
    exit_ = await ended(runtime, spec.key)
    assert (exit_.signal, exit_.oom) == (9, True)


async def test_the_memory_limit_is_hit_with_nobody_watching(machine: Machine) -> None:
    first = await machine.runtime()
    spec = machine.spec("sh", "-c", GATE + "tail /dev/zero", ram_bytes=16 * 1024**2)
    await first.start(spec, 1)
    await first.close()
    (container,) = machine.containers()
    assert machine.engine.containers.get(container).exec_run(["touch", "/tmp/go"]).exit_code == 0
    await until(lambda: set(machine.containers().values()) == {"exited"})
    exit_ = await ended(await machine.runtime(), spec.key)
    assert (exit_.signal, exit_.oom) == (9, True)


async def test_a_task_has_no_rights_over_the_machine(machine: Machine) -> None:
    runtime = await machine.runtime()
    spec = machine.spec(*SLEEP)
    await runtime.start(spec, 1)
    status, _, _ = await runtime.exec(spec.key, STATUS, PATIENCE_SECONDS)
    assert dict(line.split(":\t") for line in status.decode().splitlines()) == {
        "CapEff": "0" * 16,
        "NoNewPrivs": "1",
    }


async def test_its_port_is_the_same_inside_and_outside(machine: Machine) -> None:
    port = free_port()
    runtime = await machine.runtime()
    serve = f"httpd -f -p {port}"
    await runtime.start(machine.spec("sh", "-c", serve, ports={"http": port}), 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (line := await answer(port)):  # the engine listens there before the program does
            await asyncio.sleep(0.05)
    assert line.startswith(b"HTTP/1.")


async def answer(port: int) -> bytes:
    """Return the first line of an answer, nothing while there is none."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        line = await reader.readline()
        writer.close()
    except ConnectionError:
        return b""
    return line


async def test_the_run_before_is_kept_and_older_ones_go(machine: Machine) -> None:
    runtime = await machine.runtime()
    for run in (1, 2, 3):
        await runtime.start(machine.spec("true"), run)
        await ended(runtime, "ann/web/0@7")
    names = {f"borgish-integration-{machine.mark}-ann-web-0-7-{run}" for run in (2, 3)}
    await until(lambda: set(machine.containers()) == names)


async def test_what_was_made_and_never_started_goes(machine: Machine) -> None:
    """A borglet that died between the two calls leaves such a container."""
    config = container_config(
        machine.spec(*SLEEP), 1, Owner("integration", "m1", machine.mark), Place("none", ())
    )
    await asyncio.to_thread(machine.engine.api.create_container, **config)
    runtime = await machine.runtime()
    assert runtime.look("ann/web/0@7") is None
    await until(lambda: machine.containers() == {})
    assert (await runtime.start(machine.spec(*SLEEP), 1)).exit is None


async def test_somebody_removes_a_container(machine: Machine) -> None:
    runtime = await machine.runtime()
    spec = machine.spec(*SLEEP)
    await runtime.start(spec, 1)
    await asyncio.to_thread(machine.engine.api.remove_container, next(iter(machine.containers())), force=True)
    assert not (await ended(runtime, spec.key)).ok


async def test_an_end_that_no_event_told_of_is_found(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_calls.Engine, "listen", lambda *_: None)
    runtime = await machine.runtime(look_seconds=SOON_SECONDS)
    spec = machine.spec("sh", "-c", "sleep 0.3; exit 5")
    await runtime.start(spec, 1)
    exit_ = await ended(runtime, spec.key)
    assert exit_.code == 5


async def test_machines_of_one_name_do_not_touch_each_other(machine: Machine, busybox_image: str) -> None:
    other = Machine(machine.mark + "2", busybox_image, machine.engine)
    runtime = await machine.runtime()
    await runtime.start(machine.spec(*SLEEP), 1)
    stranger = await other.runtime()
    assert stranger.look("ann/web/0@7") is None
    await other.close()


async def test_a_command_that_takes_too_long(machine: Machine) -> None:
    runtime = await machine.runtime()
    spec = machine.spec(*SLEEP)
    await runtime.start(spec, 1)
    output = b""
    for seconds in (0.5, 5.0, 50.0):  # a busy machine needs longer to begin with it
        output, code, cut = await runtime.exec(spec.key, ("sh", "-c", "echo begun; exec sleep 999"), seconds)
        assert (code, cut) == (124, True)
        if output:
            break
    assert output == b"begun\n"
    running, _, _ = await runtime.exec(spec.key, ("ps",), PATIENCE_SECONDS)
    assert b"sleep 1000" in running
    assert b"sleep 999" not in running


async def test_a_command_beside_nothing(machine: Machine) -> None:
    runtime = await machine.runtime()
    with pytest.raises(Conflict, match="does not run here"):
        await runtime.exec("ann/web/0@7", ("true",), 1)


async def test_following_can_be_given_up(machine: Machine) -> None:
    runtime = await machine.runtime()
    spec = machine.spec("sh", "-c", "echo here; sleep 1000")
    await runtime.start(spec, 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for part in runtime.logs(spec.key, LogWanted(follow=True)):
            assert part == b"here\n"
            break


async def test_no_engine_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    runtime = DockerRuntime("integration", "m1")
    with pytest.raises(Unreachable, match="no Docker engine answers"):
        await runtime.open(lambda _: None)
    await runtime.close()


async def test_an_engine_that_hangs_loses_no_task(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trouble of the machine while it is silent; then all is as it was, and a start that hung is found."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/between.sock")
    between = EngineBetween(tmp_path / "between.sock")
    await between.open()
    runtime = await machine.runtime(look_seconds=SOON_SECONDS)
    one, two = machine.spec(*SLEEP), machine.spec(*SLEEP, task="ann/web/1")
    before = await runtime.start(one, 1)

    between.fall_silent()
    with impatient(runtime):
        with pytest.raises(StartFailed, match="in time") as caught:
            await runtime.start(two, 1)
        assert not caught.value.permanent
        await until(lambda: "did not answer in time" in runtime.trouble())
        assert runtime.look(one.key) == before

    between.speak_again()
    await until(lambda: runtime.trouble() == "")
    assert (await runtime.start(two, 1)).exit is None
    assert list(machine.containers().values()) == ["running", "running"]
    between.fall_silent()
    with impatient(runtime), pytest.raises(Unreachable, match="in time"):
        await runtime.kill(one.key)
    await runtime.close()
    await between.close()
