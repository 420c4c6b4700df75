"""Attempts that were let go, as the next borglet finds them."""

import os

from tests.integration.runtimes.machine import Machine


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
