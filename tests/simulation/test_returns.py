"""What machines that give no answer cost the others, and what becomes of what they ran when they are back."""

from contextlib import closing
from itertools import pairwise

from borgish.sim.faults import NO_FAULTS
from borgish.sim.world import World
from borgish.wire.link import split_attempt_key

POLL_SECONDS = 2.0
GRACE_SECONDS = 10.0


def test_machines_that_hang_hold_up_no_poll_of_the_others() -> None:
    with closing(World(1, machines=10, faults=NO_FAULTS)) as world:
        world.begin()
        world.clock.run_until(30.0)
        hung, *others = list(world.machines.values())[1:]
        for machine in (hung, others.pop()):  # a fifth of them: they take a poll, and never answer
            machine.cut_off(cut=True, to=False, of=True)
        world.clock.run_until(90.0)
        for machine in others:
            answers = [at for at in machine.answered_at if at > 30.0]
            assert max(later - earlier for earlier, later in pairwise(answers)) < 2 * POLL_SECONDS


def test_what_was_superseded_ends_soon_after_its_machine_is_back() -> None:
    with closing(World(1, machines=3, faults=NO_FAULTS)) as world:
        world.begin()
        world.clock.run_until(40.0)
        world.clients.stop()
        world.clock.run_until(50.0)
        away = max(world.machines.values(), key=lambda machine: len(machine.programs.alive()))
        away.cut_off(cut=True)
        world.clock.run_until(110.0)
        core = world.master.core
        assert core is not None
        superseded = [
            key
            for key in away.programs.alive()
            if (who := split_attempt_key(key)) and not core.cell.is_current(away.name, who[0], who[1])
        ]
        assert superseded
        away.cut_off(cut=False)
        world.clock.run_until(110.0 + 2 * POLL_SECONDS + GRACE_SECONDS + 2.0)
        assert not set(superseded) & set(away.programs.alive())
        assert world.checker.problems == world.master.problems == []
