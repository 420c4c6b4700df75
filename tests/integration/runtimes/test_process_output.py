"""Output is kept whole up to its bound, while it is rotated, followed, and while the disk is full."""

from pathlib import Path

from borgish.wire.link import LogWanted
from tests.contract.runtime.suite import text
from tests.integration.runtimes.machine import Machine

LINE = "%09d a line of forty bytes or so, as many \n"
WIDTH = len(LINE % 0)


def _lines(megabytes: int) -> tuple[str, int]:
    count = megabytes * 1024**2 // WIDTH
    return f'BEGIN {{ for (i = 0; i < {count}; i++) printf "{LINE[:-1]}\\n", i }}', count


async def test_rotation_loses_no_byte(machine: Machine) -> None:
    """35 MiB into 30: what is kept are the last lines, each once, in order."""
    async with machine.opened() as now:
        program, count = _lines(35)
        spec = machine.spec("awk", program)
        await now.runtime.start(spec, 1)
        assert (await now.end_of(spec.key)).ok
        kept = machine.log(spec.key)
        assert 20 * 1024**2 < len(kept) <= 30 * 1024**2
        numbers = [int(line[:9]) for line in kept.splitlines()[1:]]
        assert numbers == list(range(count - len(numbers), count))
        tail = await text(now.runtime.logs(spec.key, LogWanted(tail=300_000)))
        assert tail == "".join(LINE % i for i in range(count - 300_000, count))


async def test_following_through_rotation_sees_every_line(machine: Machine) -> None:
    async with machine.opened() as now:
        program, count = _lines(25)
        spec = machine.spec("awk", program)
        await now.runtime.start(spec, 1)
        size = 0
        async for chunk in now.runtime.logs(spec.key, LogWanted(follow=True)):
            size += len(chunk)
        assert size == count * WIDTH


async def test_following_goes_on_to_the_end_of_its_run_only(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("sh", "-c", "echo one; exit 1")
        await now.runtime.start(spec, 1)
        follower = now.runtime.logs(spec.key, LogWanted(follow=True))
        first = await anext(follower)
        await now.end_of(spec.key)
        now.news.clear()
        await now.runtime.start(machine.spec("sh", "-c", "echo two"), 2)
        await now.end_of(spec.key)
        assert first + (await text(follower)).encode() == b"one\n"


async def test_a_full_disk_costs_output_not_the_program(machine: Machine) -> None:
    async with machine.opened() as now:
        steps = "read x < a; head -c 3000000 /dev/zero; echo full > b; read x < a; echo room; exit 8"
        spec = machine.spec("sh", "-c", f"mkfifo a b; echo > c; {steps}")
        await now.runtime.start(spec, 1)
        folder = machine.run_folder(spec.key).path
        await now.until((folder / "work/c").exists)
        (folder / "log").symlink_to("/dev/full")
        (folder / "work/a").write_text("go\n")
        assert (folder / "work/b").read_text() == "full\n"
        await now.until(lambda: "bytes of output dropped" in _note(folder))
        await now.until(lambda: spec.key in now.news)
        state = now.runtime.look(spec.key)
        assert state is not None
        assert "No space left" in state.note
        (folder / "log").unlink()
        (folder / "work/a").write_text("go\n")
        now.news.clear()
        assert (await now.end_of(spec.key)).code == 8
        assert machine.log(spec.key).endswith(b"room\n")
        state = now.runtime.look(spec.key)
        assert state is not None
        assert int(state.note.split()[0]) + len(machine.log(spec.key)) == 3_000_000 + len(b"room\n")


async def test_output_of_an_ended_attempt_can_be_read_after_it_was_forgotten(machine: Machine) -> None:
    async with machine.opened() as now:
        spec = machine.spec("echo", "kept")
        await now.runtime.start(spec, 1)
        await now.end_of(spec.key)
        await now.runtime.forget(spec.key)
        assert not (machine.run_folder(spec.key).path / "work").exists()
        assert await text(now.runtime.logs(spec.key, LogWanted())) == "kept\n"


def _note(folder: Path) -> str:
    return (folder / "note").read_text()
