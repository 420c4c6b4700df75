"""Attempts with a lease: what renews it, what begins by it, and what follows from its end."""

import msgspec
import pytest

from borgish.borglet.actions import Action, Renew, Start
from borgish.borglet.attempts.entry import Head, from_entry, to_entry
from borgish.borglet.core import BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.spec.job import Program, Restart
from borgish.vocabulary import Ending, Phase, RestartPolicy, Runtime
from borgish.wire.link import Assignment, AttemptReport, AttemptSpec, Exit, PollRequest, StopOrder
from tests.unit.borglet.test_borglet_core import FACTS, KEY, make_spec

T0 = Now(1_700_000_000.0, 50.0, 1000.0)
LEASED = msgspec.structs.replace(make_spec(), lease_seconds=30.0)


class Bench:
    """A core that is polled as a master does it, with a hand on its clock."""

    def __init__(self, *specs: AttemptSpec, head: Head | None = Head("m1", 1, 1)) -> None:  # noqa: B008 - frozen
        self.now = T0
        self.core = BorgletCore("m1", "boot", "i1", FACTS, head=head, now=T0)
        self.core.adopted(Runtime.FAKE, [], T0)
        self.assignment = Assignment(1, specs)

    def poll(self, echo: float | None, *, generation: int = 1, instance: str = "i1") -> tuple[Action, ...]:
        """A poll that refers to an answer of so many seconds ago, or to none; return what is to be done."""
        stamp = 0.0 if echo is None else self.now.boot - echo
        request = PollRequest("c", 1, 1, generation, 1, instance, assignment=self.assignment, echo=stamp)
        self.core.poll(request, self.now)
        return self.core.step(self.now).todo

    def later(self, seconds: float) -> tuple[Action, ...]:
        self.now = self.now.later(seconds)
        return self.core.step(self.now).todo

    def ran(self, run: int = 1, exit_: Exit | None = None, key: str = KEY) -> tuple[Action, ...]:
        self.core.ran(key, RunState(key, run, 40 + run, self.now.wall, exit_), self.now)
        return self.core.step(self.now).todo

    @property
    def said(self) -> AttemptReport:
        (report,) = self.core.report()
        return report


def test_it_starts_when_the_master_refers_to_an_answer_of_this_borglet() -> None:
    bench = Bench(LEASED)
    assert bench.poll(None) == ()  # who asks may have asked a minute ago
    assert bench.said.reason == "starts when this machine hears of the borgmaster: its job is exclusive"
    assert bench.core.step(bench.now).wake_at is None
    assert bench.poll(2.0) == (Renew(LEASED, T0.boot + 28.0), Start(LEASED, 1))


@pytest.mark.parametrize(
    ("echo", "instance"),
    [
        (2.0, "i0"),  # of the borglet before: its clock may be another
        (31.0, "i1"),  # it was held up on its way, or in a socket while this borglet was stopped
        (-1.0, "i1"),  # of the future: of another boot
    ],
)
def test_nothing_begins_by_a_poll_that_may_be_old(echo: float, instance: str) -> None:
    bench = Bench(LEASED)
    started = [each for each in bench.poll(echo, instance=instance) if isinstance(each, Start)]
    assert started == []


def test_polls_renew_what_the_newest_assignment_names_and_nothing_else() -> None:
    bench = Bench(LEASED)
    bench.poll(1.0)
    bench.ran()
    assert bench.later(5.0) == ()
    assert bench.poll(1.0) == (Renew(LEASED, bench.now.boot + 29.0),)
    assert bench.poll(1.0) == ()  # no news
    bench.later(5.0)
    assert bench.poll(1.0, generation=2) == ()  # there is a newer one, which has not arrived
    bench.assignment = Assignment(2)
    assert (
        bench.poll(1.0, generation=2) == ()
    )  # it is not named any more, and runs on until it is asked to stop
    assert bench.said.phase is Phase.UP


def test_what_lapsed_ends_whatever_its_policy_says() -> None:
    for policy in RestartPolicy:
        spec = msgspec.structs.replace(LEASED, restart=Restart(policy))
        bench = Bench(spec)
        bench.poll(1.0)
        bench.ran()
        bench.later(31.0)
        assert bench.ran(1, Exit(signal=15, reason="its lease was over", lapsed=True)) == ()
        assert (bench.said.ended, bench.said.reason) == (Ending.KILL, "its lease was over")
        assert bench.said.last_exit == Exit(signal=15, reason="its lease was over", lapsed=True)


def test_a_local_restart_waits_for_a_lease() -> None:
    bench = Bench(LEASED)
    bench.poll(1.0)
    bench.ran()
    bench.later(29.5)
    assert bench.ran(1, Exit(code=1)) == ()
    assert bench.poll(1.0) == (Renew(LEASED, bench.now.boot + 29.0), Start(LEASED, 2))


def test_a_restarted_borglet_begins_nothing_before_it_is_polled() -> None:
    bench = Bench(LEASED)
    bench.poll(1.0)
    attempt = from_entry(to_entry(bench.core.attempts()[KEY]), bench.now)
    assert attempt.advance(bench.now) == []


def test_the_programs_beside_have_its_lease_and_are_started_again_after_it() -> None:
    beside = Program("proxy", ("proxy",))
    spec = msgspec.structs.replace(LEASED, programs=(beside,))
    bench = Bench(spec)
    renewed = [each.key for each in bench.poll(1.0) if isinstance(each, Renew)]
    assert renewed == [KEY, f"{KEY}:proxy"]
    bench.ran()
    bench.ran(key=f"{KEY}:proxy")
    bench.ran(1, Exit(signal=15, lapsed=True), key=f"{KEY}:proxy")
    assert bench.said.ended is None  # its main program may have been waiting for its own next start


def test_a_borglet_that_has_lost_its_folder_waits_for_what_it_may_have_run() -> None:
    bench = Bench(LEASED, head=Head("m1"))
    bench.poll(1.0)
    waited = 30.0 + LEASED.stop.grace_seconds + 5.0
    for _ in range(int(waited) - 1):
        assert not any(isinstance(each, Start) for each in (*bench.later(1.0), *bench.poll(0.5)))
    assert Start(LEASED, 1) in bench.later(2.0)


def test_what_is_assigned_later_does_not_wait() -> None:
    bench = Bench(head=Head("m1"))
    bench.poll(1.0)
    bench.assignment = Assignment(2, (LEASED,))
    assert Start(LEASED, 1) in bench.poll(1.0, generation=2)


def test_what_was_killed_and_goes_on_is_unkillable_after_ten_seconds() -> None:
    bench = Bench(make_spec())
    bench.poll(1.0)
    bench.ran()
    bench.assignment = Assignment(2, (), (StopOrder("ann/web/0", 7, "drain"),))
    bench.poll(1.0, generation=2)
    bench.later(5.0)  # the grace
    assert not bench.said.unkillable
    bench.later(9.9)
    assert not bench.said.unkillable
    bench.later(0.2)
    assert bench.said.unkillable
    assert bench.said.reason.startswith("the program (pid 41) was killed and goes on")
    again = from_entry(to_entry(bench.core.attempts()[KEY]), bench.now)
    assert again.unkillable
    bench.ran(1, Exit(signal=9))
    assert (bench.said.unkillable, bench.said.ended) == (False, Ending.KILL)
