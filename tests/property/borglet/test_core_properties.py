"""The core against a made-up machine that starts, ends, loses and answers at random.

Held after every step: no program of an attempt runs twice at once, what ended stays ended, an ended
attempt is never started again, the report says of each attempt what is true, and what runs beside a main
program begins after it and ends before it begins again. After the storm: the report converges to the
assignment.
"""

import random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from borgish.borglet.actions import Action, Forget, Kill, Probe, Signal, Start
from borgish.borglet.attempts.entry import Entry, Head
from borgish.borglet.attempts.transitions import Stage
from borgish.borglet.core import Actions, BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.errors import Conflict
from borgish.resources import Resources
from borgish.spec.job import Health, Program, Restart, Stop
from borgish.vocabulary import Ending, RestartPolicy, Runtime
from borgish.wire.link import (
    Assignment,
    AttemptSpec,
    Exit,
    Facts,
    PollReply,
    PollRequest,
    StopOrder,
    main_key,
)
from tests.profiles import examples

FACTS = Facts(Resources(1000, 2**30, 2**30), {}, (Runtime.FAKE,), 20000, 20999)
POLICIES = tuple(RestartPolicy)


def spec(task: int, attempt: int, rng: random.Random) -> AttemptSpec:
    health = Health(tcp=True, port="p", interval_seconds=2.0, failures=2, grace_seconds=3.0)
    return AttemptSpec(
        task=f"ann/web/{task}",
        attempt=attempt,
        run=("serve",),
        env={},
        runtime=Runtime.FAKE,
        resources=Resources(cpu_millis=1),
        restart=Restart(rng.choice(POLICIES), attempts=rng.choice((0, 0, 3)), within_seconds=60.0),
        stop=Stop("TERM", 3.0),
        ports={"p": 20000 + task},
        health=health if rng.random() < 0.5 else None,
        max_runtime_seconds=rng.choice((0.0, 0.0, 0.0, 90.0)),
        programs=rng.choice(
            ((), (), (Program("side", ("s",)),), (Program("a", ("s",)), Program("b", ("s",))))
        ),
    )


class Machine:
    """A machine, its borglet and its master, in one. What is not delivered yet waits in ``mail``."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = Now(1_700_000_000.0, 10.0)
        self.runs: dict[str, RunState] = {}  # what the runtime knows: the latest run of each attempt
        self.starts: set[tuple[str, int]] = set()
        self.mail: list[Action] = []
        self.alive: dict[str, int] = {}
        self.final: dict[str, Ending] = {}
        self.forgotten: set[str] = set()
        self.wanted: dict[str, AttemptSpec] = {}
        self.unwanted: dict[str, StopOrder] = {}
        self.dead: set[str] = set()  # the master has it durably that these ended
        self.generation, self.epoch, self.next_attempt, self.instance = 0, 1, 1, 0
        self.seen, self.seen_instance = 0, ""
        self.entries: dict[str, Entry] = {}
        self.head: Head | None = None
        self.wake_at: float | None = None
        self.polls: list[PollRequest] = []
        self.boot()

    def boot(self) -> None:
        """The borglet starts; actions under way are lost, the ledger and the runs are not."""
        self.instance += 1
        self.mail.clear()
        self.core = BorgletCore(
            "m1",
            "boot",
            f"i{self.instance}",
            FACTS,
            ledger=self.entries.values(),
            head=self.head,
            now=self.now,
        )
        self.core.adopted(Runtime.FAKE, list(self.runs.values()), self.now)
        self.step()

    def step(self) -> Actions:
        actions = self.core.step(self.now)
        for key, entry in actions.records.items():
            if entry is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = entry
        self.head = actions.head or self.head
        self.mail += actions.todo
        for action in actions.todo:
            if isinstance(action, Start):
                self.check_start(action)
        self.wake_at = actions.wake_at
        self.check()
        return actions

    def check(self) -> None:
        assert self.entries == {entry.key: entry for entry in self.core.ledger()}
        for report in self.core.report():
            if report.key in self.final:
                assert report.ended == self.final[report.key], "an end is final"
            if report.ended:
                self.final[report.key] = report.ended
        assert self.wake_at is None or self.wake_at > self.now.mono, "what was due is done"

    def check_start(self, action: Start) -> None:
        """What runs beside a main program is asked for once that runs; none is left when that begins."""
        main = main_key(action.key)
        if main != action.key:
            assert self.core.attempts()[main].stage is Stage.UP, "begins after its main program"
            assert action.run > 0
        elif action.key not in self.alive:  # else it is asked for again, and there already
            assert not [k for k in self.alive if main_key(k) == main], "ends before its main one begins"

    # -- what happens ---------------------------------------------------------------------------------

    def deliver(self) -> None:
        """The runtime does one of the things it was asked for."""
        if not self.mail:
            return
        # one attempt's things stay in order; those of different attempts may overtake each other
        key = self.rng.choice(self.mail).key
        index = next(i for i, action in enumerate(self.mail) if action.key == key)
        self.act(self.mail.pop(index))
        self.step()

    def act(self, action: Action) -> None:
        if isinstance(action, Start):
            self.start(action)
        elif isinstance(action, Signal | Kill):
            if action.key in self.alive and (isinstance(action, Kill) or self.rng.random() < 0.7):
                self.end(action.key, Exit(signal=15, at=self.now.wall))
        elif isinstance(action, Probe):
            ok = self.rng.random() < 0.6
            self.core.probed(action.key, action.run, "" if ok else "refused", self.now, ok=ok)
        elif isinstance(action, Forget):
            assert main_key(action.key) in self.dead, "only what the master knows to have ended is let go"
            self.forgotten.add(action.key)
            self.runs.pop(action.key, None)
            self.core.forgotten(action.key)

    def start(self, action: Start) -> None:
        known = self.runs.get(action.key)
        if known and known.run == action.run:  # idempotent
            self.core.ran(action.key, known, self.now)
            return
        assert main_key(action.key) not in self.final, "what ended is never started again"
        assert action.key not in self.alive, "one program at a time"
        if self.rng.random() < 0.2:
            permanent = self.rng.random() < 0.5
            port = 0 if permanent else self.rng.choice((0, 20000))
            self.core.start_failed(action.key, action.run, "no", self.now, permanent=permanent, port=port)
            return
        state = RunState(action.key, action.run, 100 + action.run, self.now.wall)
        self.runs[action.key], self.alive[action.key] = state, action.run
        if self.rng.random() < 0.8:  # else the borglet is told later, or finds it after its restart
            self.core.ran(action.key, state, self.now)
        else:
            self.mail.insert(0, action)

    def end(self, key: str, exit_: Exit) -> None:
        run = self.alive.pop(key)
        self.runs[key] = RunState(key, run, 100 + run, self.now.wall - 1.0, exit_)
        self.core.ran(key, self.runs[key], self.now)

    def crash(self) -> None:
        if self.alive:
            key = self.rng.choice(sorted(self.alive))
            self.end(key, Exit(code=self.rng.choice((0, 1)), at=self.now.wall))
            self.step()

    def lose(self) -> None:
        """A program and all trace of it vanish while the borglet is away."""
        if self.alive:
            key = self.rng.choice(sorted(self.alive))
            del self.alive[key], self.runs[key]
            self.boot()

    def wait(self) -> None:
        at = self.wake_at
        to_alarm = at - self.now.mono if at is not None else 1.0
        self.now = self.now.later(self.rng.choice((0.1, 1.0, 20.0, to_alarm)))
        self.step()

    def place(self) -> None:
        new = spec(self.rng.randrange(4), self.next_attempt, self.rng)
        self.next_attempt += 1
        self.wanted[new.key] = new
        self.generation += 1

    def stop(self) -> None:
        if self.wanted:
            key = self.rng.choice(sorted(self.wanted))
            gone = self.wanted.pop(key)
            notice_seconds, seconds = (
                self.rng.choice((None, None, 4.0)),
                self.rng.choice((0.0, 0.0, 5.0, 30.0)),
            )
            self.unwanted[key] = StopOrder(gone.task, gone.attempt, "drain", notice_seconds, seconds)
            self.generation += 1

    def new_master(self) -> None:
        self.epoch += 1
        self.generation, self.seen = 1, 0

    def poll(self) -> None:
        order = Assignment(self.generation, tuple(self.wanted.values()), tuple(self.unwanted.values()))
        request = PollRequest(
            "local", 1, self.epoch, self.generation, self.seen, self.seen_instance, assignment=order
        )
        self.polls.append(request)
        self.core.poll(request, self.now)
        self.step()
        if self.rng.random() < 0.8:  # else the answer is lost
            self.learn(self.core.reply(request))

    def replay(self) -> None:
        """An old poll arrives late; it may be refused, and must not undo what newer ones said."""
        if self.polls:
            try:
                self.core.poll(self.rng.choice(self.polls), self.now)
            except Conflict:
                return
            self.step()

    def learn(self, reply: PollReply) -> None:
        self.seen, self.seen_instance = reply.report_generation, reply.instance
        if reply.report is None:
            return
        reported = {r.key: r for r in reply.report.attempts}
        for key, report in reported.items():
            if report.ended:
                self.dead.add(key)
                self.wanted.pop(key, None)
        ended = {k for k in self.unwanted if k not in reported or reported[k].ended}
        self.unwanted = {k: o for k, o in self.unwanted.items() if k not in ended}
        self.generation += 1

    # -- after the storm --------------------------------------------------------------------------------

    def calm(self) -> None:
        """No more faults: everything asked for is done, time passes, the master polls."""
        for _ in range(60):
            while self.mail:
                self.calm_act(self.mail.pop(0))
                self.step()
            self.now = self.now.later(8.0)
            self.step()
            order = Assignment(self.generation, tuple(self.wanted.values()), tuple(self.unwanted.values()))
            self.core.poll(
                PollRequest(
                    "local", 1, self.epoch, self.generation, self.seen, self.seen_instance, assignment=order
                ),
                self.now,
            )
            self.step()
            request = PollRequest("local", 1, self.epoch, self.generation, self.seen, self.seen_instance)
            self.learn(self.core.reply(request))

    def calm_act(self, action: Action) -> None:
        if isinstance(action, Start):
            known = self.runs.get(action.key)
            if not known or known.run != action.run:
                state = RunState(action.key, action.run, 1, self.now.wall)
                self.runs[action.key], self.alive[action.key] = state, action.run
            self.core.ran(action.key, self.runs[action.key], self.now)
        elif isinstance(action, Probe):
            self.core.probed(action.key, action.run, "", self.now, ok=True)
        elif isinstance(action, Signal | Kill) and action.key in self.alive:
            self.end(action.key, Exit(signal=9, at=self.now.wall))
        elif isinstance(action, Forget):
            self.act(action)


EVENTS = (
    "deliver",
    "deliver",
    "deliver",
    "deliver",
    "wait",
    "wait",
    "place",
    "stop",
    "poll",
    "poll",
    "poll",
    "crash",
    "replay",
    "boot",
    "lose",
    "new_master",
)


LATE_MAIL = ("place", "poll", "poll", "deliver", "deliver", "crash", "replay", "replay")
STORMS = st.one_of(
    st.lists(st.sampled_from(EVENTS), max_size=80),
    st.lists(st.sampled_from(LATE_MAIL), min_size=30, max_size=60),
)


@settings(max_examples=examples(150))
@given(STORMS, st.integers(0, 2**32))
def test_the_machine_stays_right_and_converges(events: list[str], seed: int) -> None:
    machine = Machine(random.Random(seed))
    for event in events:
        getattr(machine, event)()
    machine.calm()
    running = {r.key for r in machine.core.report() if not r.ended}
    assert running == set(machine.wanted), "what is wanted and has not ended is there, and nothing else"
    assert {main_key(key) for key in machine.alive} <= running
    lasting = [spec for spec in machine.wanted.values() if not spec.max_runtime_seconds]
    programs = {s.key for s in lasting} | {s.beside(each).key for s in lasting for each in s.programs}
    assert programs <= set(machine.alive), "and all of its programs run"


@settings(max_examples=examples(50))
@given(st.lists(st.sampled_from(EVENTS), max_size=60), st.integers(0, 2**32))
def test_a_restart_of_the_borglet_changes_nothing_it_says(events: list[str], seed: int) -> None:
    machine = Machine(random.Random(seed))
    for event in events:
        getattr(machine, event)()
    for _ in range(200):
        machine.deliver()
    before = said(machine)
    assume(not machine.mail)
    machine.boot()
    assert said(machine) == before


def said(machine: Machine) -> dict[str, object]:
    """Return of each attempt what nothing but time may change."""
    return {
        r.key: (r.ended, r.restarts, r.last_exit, [(each.name, each.restarts) for each in r.programs])
        for r in machine.core.report()
    }
