"""Attempts that were let go, as the next borglet finds them."""

import os

from tests.integration.runtimes.machine import Machine


async def test_two_attempts_let_go_in_the_same_moment(machine: Machine) -> None:
    keys = ["ann/web/0@7", "ann/web/1@8"]
    async with machine.opened() as now:
        for key, spec in zip(
            keys, (machine.spec("true"), machine.spec("true", task="ann/web/1", attempt=8)), strict=True
        ):
            await now.runtime.start(spec, 1)
            await now.until(lambda key=key: (s := now.runtime.look(key)) is not None and s.exit is not None)
            await now.runtime.forget(key)
    for key in keys:  # clocks of file systems are coarse
        os.utime(machine.run_folder(key).path / "forgotten", (1_000_000_000, 2_000_000_000))
    async with machine.opened() as later:
        assert later.found == []
