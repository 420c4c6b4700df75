"""What follows from the answers of one machine, in whatever order they come."""

import msgspec
import pytest

from borgish.cell.apply import apply_entry
from borgish.cell.events import Entry, JobSubmitted, TasksPlaced
from borgish.cell.model import Cell, Machine, Snapshot
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.link import conversation as conversation_module
from borgish.link.conversation import Conversation
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import Phase, Runtime
from borgish.wire.link import AttemptReport, Exit, Facts, PollReply, Report

NOW = Now(100.0, 1.0)
FACTS = Facts(Resources(1000), {}, (Runtime.PROCESS,), 1, 2)
OLD, NEW = AttemptReport("ann/web/0", 3, Phase.UP), AttemptReport("ann/web/1", 4, Phase.UP)


@pytest.fixture
def cell() -> Cell:
    cell = Cell(Snapshot("c"))
    cell.machines["m1"] = Machine(
        "m1", "127.0.0.1", 1, False, FACTS.capacity, {}, FACTS.runtimes, 1, 2, "b", 0.0
    )
    return cell


@pytest.fixture
def conversation(cell: Cell) -> Conversation:
    return Conversation(cell, Observed(), "m1")


def reply(instance: str, generation: int, *attempts: AttemptReport) -> PollReply:
    return PollReply("m1", "b", instance, 1, generation, Report(FACTS, attempts))


def take(conversation: Conversation, answer: PollReply) -> bool:
    """Return whether it was news."""
    news = conversation.observe(answer)
    conversation.acknowledge(answer)
    return news is not None


def test_an_overtaken_answer_is_no_news(conversation: Conversation) -> None:
    assert take(conversation, reply("i", 7, OLD, NEW))
    assert not take(conversation, reply("i", 6, OLD))


def test_what_a_borglet_said_before_it_was_started_again_is_no_news(conversation: Conversation) -> None:
    assert take(conversation, reply("before", 9, OLD))
    assert take(conversation, reply("now", 2, OLD, NEW))
    assert not take(conversation, reply("before", 10, OLD))  # would say that NEW is gone
    request = conversation.request(2.0)
    assert (request.seen_instance, request.seen) == ("now", 2)


def test_of_several_runs_of_a_borglet_the_last_counts_whichever_answer_was_read_last(
    conversation: Conversation,
) -> None:
    """It was started again twice while a poll was held, and the answer of the run between is read last."""
    first, between, last = (
        msgspec.structs.replace(reply(name, 2, *there), stamp=stamp)
        for name, there, stamp in (("first", (), 1.0), ("between", (OLD,), 2.0), ("last", (OLD, NEW), 3.0))
    )
    assert take(conversation, first)
    assert take(conversation, last)
    assert not take(conversation, between)
    assert take(conversation, msgspec.structs.replace(last, report_generation=3, stamp=4.0))
    assert conversation.request(2.0).seen == 3


def test_a_machine_whose_clock_jumped_back_is_heard_after_a_failed_poll(conversation: Conversation) -> None:
    assert take(conversation, msgspec.structs.replace(reply("before", 1, OLD), stamp=1e9))
    conversation.lose()
    assert take(conversation, msgspec.structs.replace(reply("now", 1, OLD), stamp=2.0))


@pytest.mark.parametrize(
    "name", ["web", "", "ann/web/x", "ann/web/01", "ann/web/-1", "ann/web/\u0663", "a/b/c/1"]
)
def test_an_attempt_without_the_name_of_a_task_is_passed_over(conversation: Conversation, name: str) -> None:
    news = conversation.observe(reply("i", 1, AttemptReport(name, 3, Phase.UP), OLD))
    assert news is not None
    assert [attempt.task for attempt in news.changed] == ["ann/web/0"]


def test_nobody_is_asked_to_hold_a_poll_who_has_something_to_say(conversation: Conversation) -> None:
    assert conversation.request(2.0).wait_seconds == 0.0
    take(conversation, reply("i", 1))
    assert conversation.request(2.0).wait_seconds == 2.0
    conversation.lose()
    assert conversation.request(2.0).wait_seconds == 0.0


def test_an_end_for_want_of_memory_is_called_so(conversation: Conversation) -> None:
    again = AttemptReport("ann/web/0", 3, Phase.UP, restarts=1, last_exit=Exit(signal=9, oom=True))
    news = conversation.observe(reply("i", 1, again))
    assert news is not None
    assert [attempt.exit_reason for attempt in news.changed] == ["out of memory"]


def test_images_are_told_when_they_changed_and_anew_to_who_knows_nothing(conversation: Conversation) -> None:
    def told(generation: int, images: dict[str, str]) -> dict[str, str] | None:
        facts = msgspec.structs.replace(FACTS, images=images)
        answer = PollReply("m1", "b", "i", 1, generation, Report(facts, ()))
        news = conversation.observe(answer)
        conversation.acknowledge(answer)
        assert news is not None
        return news.images

    assert told(1, {"busybox:1": "amd64"}) == {"busybox:1": "amd64"}
    assert told(2, {"busybox:1": "amd64"}) is None
    assert told(3, {}) == {}
    conversation.lose()
    assert told(4, {}) == {}


def test_who_polls_a_machine_again_goes_on_counting() -> None:
    """Under one epoch a borglet ignores assignments older than the last it got, whoever made them."""
    cell = Cell(Snapshot("c"))
    first = Conversation(cell, Observed(), "m1")
    first.renew(NOW)
    first.renew(NOW)
    second = Conversation(cell, Observed(), "m1", first.generation)
    second.renew(NOW)
    assigned = second.request(1.0).assignment
    assert assigned is not None
    assert assigned.generation == 3


def test_a_machine_removed_a_moment_ago_has_no_news(conversation: Conversation) -> None:
    conversation._cell.machines.clear()
    assert not take(conversation, reply("i", 7, OLD, NEW))


def test_a_timeline_is_named_once_it_is_durable(cell: Cell, conversation: Conversation) -> None:
    conversation.renew(NOW)
    before = conversation.request(2.0).timeline
    cell.timeline += 1  # a rollback was decided, and is being committed
    assert conversation.request(2.0).timeline == before
    conversation.renew(NOW)
    assert conversation.request(2.0).timeline == before + 1


def test_an_assignment_that_could_not_be_made_lacks_nothing_the_next_time(
    cell: Cell, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell.reindex()
    conversation.renew(NOW)
    events = JobSubmitted(JobSpec("web", "ann", 1, ("serve",))), TasksPlaced("ann/web", (0,), ("m1",))
    apply_entry(cell, Entry(1, 0.0, 0, 0, "ann", "submit", events))

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(conversation_module, "attempt_spec", fail)
        with pytest.raises(ZeroDivisionError):
            conversation.renew(NOW)
    conversation.renew(NOW)
    assignment = conversation.request(2.0).assignment
    assert assignment is not None
    assert [spec.task for spec in assignment.run] == ["ann/web/0"]
