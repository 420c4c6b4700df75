"""What goes wrong in a simulation, and how often. All of it is drawn from one seeded source."""

import random

import msgspec


class Faults(msgspec.Struct, frozen=True):
    """Chances are per message or start; the others are mean seconds between two of the kind, 0 for never."""

    message_lost: float = 0.05
    message_slow: float = 0.1  # takes up to slow_seconds instead of a millisecond
    message_doubled: float = 0.02  # a poll arrives twice
    slow_seconds: float = 3.0
    store_slow: float = 0.01  # the store takes up to slow_seconds for something
    start_fails: float = 0.05
    task_lives_seconds: float = 60.0  # of a service, until it crashes
    append_fails: float = 0.005  # the outcome of a commit is unknown: the master ends
    master_dies_seconds: float = 30.0
    borglet_dies_seconds: float = 15.0  # any one of them
    machine_cut_off_seconds: float = 20.0  # any one: nothing gets through for a while
    machine_boots_seconds: float = 60.0  # any one: its programs are gone, its disk is not
    machine_wiped_seconds: float = 120.0  # any one: its disk is gone as well
    machine_flaps_seconds: float = 0.0  # any one: it is cut off and back by turns for a while
    master_stalls_seconds: float = 45.0  # nothing of it happens for a while; the others go on
    borglet_stops_seconds: float = 0.0  # any one: nothing of it happens for a while, as after SIGSTOP
    clock_steps_seconds: float = 40.0  # all wall clocks are set on or back
    store_fills_seconds: float = 0.0  # there is little room in the store for a while, or none
    # A second master begins on a copy of the store, of now or of some time before. Never by default: while
    # the first one is dead or held up nobody polls the machines, and a copy leads them.
    master_copied_seconds: float = 0.0
    session_lost_seconds: float = 0.0  # with several masters: the leader's session, though its process lives
    away_seconds: float = 25.0  # at most, for all of these


FLAPS = 12
FLAPS_SECONDS = (11.0, 18.0), (4.0, 12.0)
"""How long it is cut off each time, and how long back."""
CLOCK_STEPS_SECONDS = (0.5, 3600.0, 10 * 365 * 86400.0)

NO_FAULTS = Faults(**dict.fromkeys(Faults.__struct_fields__, 0.0))


class FaultInjector:
    """The only source of chance. ``faults`` are in force until ``calm`` is called."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.seed = seed
        self.faults = faults
        self.random = random.Random(seed)  # noqa: S311 - chance that can be repeated, not secrets

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        self.faults = NO_FAULTS

    def happens(self, chance: float) -> bool:
        """Return True so often."""
        return chance > 0 and self.random.random() < chance

    def travel_seconds(self) -> float | None:
        """Return how long a message takes, None when it is lost."""
        if self.happens(self.faults.message_lost):
            return None
        if self.happens(self.faults.message_slow):
            return self.random.uniform(0.001, self.faults.slow_seconds)
        return 0.0005

    def offloaded_seconds(self) -> float:
        """Return how long work in a thread takes, such as a commit."""
        if self.happens(self.faults.store_slow):
            return self.random.uniform(0.001, self.faults.slow_seconds)
        return 0.002

    def until_next(self, mean_seconds: float) -> float:
        """Return the time until something that happens at random comes again."""
        return self.random.expovariate(1 / mean_seconds)

    def away_seconds(self) -> float:
        """Return how long something that died or was cut off stays so."""
        return self.random.uniform(0.1, max(0.1, self.faults.away_seconds))

    def flaps(self) -> list[float]:
        """Return how long a flapping machine is cut off, back, cut off, and so on."""
        return [self.random.uniform(*FLAPS_SECONDS[number % 2]) for number in range(2 * FLAPS)]

    def clock_step_seconds(self) -> float:
        """Return by how much a wall clock is set on or back."""
        return self.random.choice((-1, 1)) * self.random.choice(CLOCK_STEPS_SECONDS)

    def of(self, *names: object) -> random.Random:
        """Return a source that depends on these names alone, not on what was drawn before."""
        return random.Random(":".join(map(str, (self.seed, *names))))  # noqa: S311 - as above
