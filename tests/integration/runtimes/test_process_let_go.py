"""Attempts that were let go, as the next borglet finds them."""

import os
from pathlib import Path

import pytest

from borgish.borglet.runtimes import leftovers as rule
from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.leftovers import Retention
from borgish.wire.link import LogWanted
from tests.contract.runtime.suite import text
from tests.integration.runtimes.machine import Machine


def folders(machine: Machine) -> set[Path]:
    return set((machine.folder / "runs").iterdir())


async def test_two_attempts_let_go_in_the_same_moment(machine: Machine) -> None:
    specs = [machine.spec("true"), machine.spec("true", task="ann/web/1", attempt=8)]
    async with machine.opened() as now:
        for spec in specs:
            await now.runtime.start(spec, 1)
            await now.end_of(spec.key)
            await now.runtime.forget(spec.key)
    for spec in specs:  # clocks of file systems are coarse
        os.utime(machine.run_folder(spec.key).path / "forgotten", (2_000_000_000, 2_000_000_000))
    async with machine.opened() as later:
        assert later.found == []


async def test_what_is_wanted_for_longer_is_so_by_the_next_borglet_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "ROUND_SECONDS", 0.01)
    keep = Retention(seconds=0.0, last_seconds=0.001)
    wanted, other = machine.spec("echo", "word"), machine.spec("true", task="ann/web/1", attempt=8)
    async with machine.opened() as now:
        for spec, seconds in ((wanted, 3600.0), (other, 0.0)):
            await now.runtime.start(spec, 1)
            await now.end_of(spec.key)
            await now.runtime.forget(spec.key, seconds)
    async with machine.opened(keep) as later:
        assert later.found == []
        await later.until(lambda: folders(machine) == {machine.run_folder(wanted.key).path})
        assert await text(later.runtime.logs(wanted.key, LogWanted())) == "word\n"


async def test_folders_are_removed_while_the_borglet_runs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "ROUND_SECONDS", 0.01)
    async with machine.opened(Retention(folders=1)) as now:
        stays = machine.spec("sleep", "1000", task="ann/web/9", attempt=20)
        ended = machine.spec("true", task="ann/web/8", attempt=21)
        for spec in (stays, ended):
            await now.runtime.start(spec, 1)
        await now.end_of(ended.key)  # and nobody has let go of it: the master does not know its end yet
        specs = [machine.spec("echo", f"word{n}", attempt=n) for n in range(1, 6)]
        for spec in specs:
            await now.runtime.start(spec, 1)
            await now.end_of(spec.key)
            await now.runtime.forget(spec.key)
        left = {machine.run_folder(spec.key).path for spec in (stays, ended, specs[-1])}
        await now.until(lambda: folders(machine) == left)
        logs = now.runtime.logs(specs[-1].key, LogWanted())
        assert await text(logs) == "word5\n"
        assert now.runtime.removed(specs[0].key) == "more than 1 ended programs were kept"


async def test_a_start_that_failed_leaves_nothing_for_good(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule, "ROUND_SECONDS", 0.01)
    async with machine.opened(Retention(folders=0)) as now:
        spec = machine.spec("no-such-command")
        with pytest.raises(StartFailed):
            await now.runtime.start(spec, 1)
        assert folders(machine) == {machine.run_folder(spec.key).path}
        await now.runtime.forget(spec.key)
        await now.until(lambda: not folders(machine))
