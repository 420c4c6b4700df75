"""The judge of what the journal records sees what no pass of the scheduler may do."""

from borgish.cell.events import AnyEvent, Entry, TasksEvicted
from borgish.sim.checkers.policy import PREEMPTED_MIN, Record
from borgish.vocabulary import Eviction


def preempted(job: str, count: int, preemptor: str) -> TasksEvicted:
    return TasksEvicted(job, tuple(range(count)), Eviction.PREEMPTED, preemptor=preemptor)


def problems_of(*events: AnyEvent) -> list[str]:
    entry = Entry(1, 0.0, 1, 1, "scheduler", "preempt", events)
    return [text for text in Record([entry], {1: 0.0}, [], [], {}).problems if "in one pass" in text]


def test_too_many_victims_of_one_pass_are_found() -> None:
    assert problems_of(preempted("ann/a", PREEMPTED_MIN, "bob/b/0")) == []
    assert problems_of(preempted("ann/a", PREEMPTED_MIN, "bob/b/0"), preempted("eve/c", 1, "bob/b/1")) == [
        f"{PREEMPTED_MIN + 1} tasks were preempted in one pass"
    ]


def test_the_first_who_preempts_may_need_more() -> None:
    assert problems_of(preempted("ann/a", PREEMPTED_MIN + 1, "bob/b/0")) == []


def test_a_victim_that_preempts_is_found() -> None:
    assert problems_of(preempted("ann/a", 1, "bob/b/0"), preempted("eve/c", 1, "ann/a/0")) == [
        "ann/a/0 preempted others and was preempted in one pass"
    ]
