"""Whatever is lost, comes twice or in another order: a borglet never has anything but an assignment that was
made, and in the end it has the last one; and so it is with the master and what the borglet reports."""

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from borgish.borglet.core import BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.cell.commands import SeenAttempt, SubmitJob
from borgish.cell.lifecycle import note_move
from borgish.cell.model import Task, Version
from borgish.cell.observed import SeenKey, record_report
from borgish.clock import Now
from borgish.errors import NotFollowed
from borgish.link.conversation import Conversation, seen_attempt
from borgish.resources import Resources
from borgish.vocabulary import Ending, Runtime, State
from borgish.wire.link import Assignment, Exit, Facts, PollReply, PollRequest, Report
from tests.profiles import examples
from tests.unit.cell.test_decide import Desk, spec

NOW = Now(100.0, 1.0)
FACTS = Facts(Resources(1000), {}, (Runtime.PROCESS,), 1, 2)
TASKS = 4

OFTEN = (
    "place",
    "place",
    "evict",
    "update",
    "run",
    "run",
    "ask",
    "deliver",
    "deliver",
    "answer",
    "answer",
    "talk",
    "talk",
)
SELDOM = ("fail", "start again", "garble", "garble", "garble answer")
moves = st.lists(
    st.tuples(st.sampled_from((*OFTEN, *OFTEN, *SELDOM)), st.integers(0, 9)), min_size=10, max_size=60
)


Seen = dict[SeenKey, SeenAttempt]


class Pair:
    """A conversation and a borglet. Messages stay in the network, which delivers any of them at any time."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.desk.do(SubmitJob(spec(tasks=TASKS)))
        self.last_attempt = 100
        self.desk.cell.position = 10_000  # what is placed is no orphan
        self.conversation = Conversation(self.desk.cell, self.desk.observed, "m1")
        self.requests: list[PollRequest] = []
        self.replies: list[PollReply] = []
        self.made: dict[int, set[bytes]] = {}
        self.reported: dict[tuple[str, int], Seen] = {}  # by borglet run and generation
        self.changes = self.reports_changed = 0
        self.instance = self.said = 0
        self.borglet = self._borglet()
        self._renew()

    def _borglet(self) -> BorgletCore:
        core = BorgletCore("m1", "b1", f"i{self.instance}", FACTS, now=NOW)
        core.adopted(Runtime.PROCESS, (), NOW)
        return core

    def _renew(self) -> None:
        self.conversation.renew(NOW)
        whole = Conversation(self.desk.cell, self.desk.observed, "m1")
        whole.renew(NOW)
        assignment = whole.request(0.0).assignment
        assert assignment is not None
        self.made[self.conversation.generation] = as_bytes(assignment)

    def move(self, what: str, number: int) -> None:
        """Do one of ``moves``."""
        if what in ("place", "evict", "update"):
            self._set_task(what, number % TASKS)
        elif what == "ask":
            self.ask()
        elif what == "deliver" and self.requests:
            self.deliver(self.requests[-1 - number % len(self.requests)])
        elif what == "answer" and self.replies:
            self.answer(self.replies[-1 - number % len(self.replies)])
        elif what == "talk":
            self.talk()
        elif what == "fail":
            self.conversation.lose()
        elif what == "start again":
            self.instance += 1
            self.replies.clear()  # what a process has not sent when it ends is never sent
            self.borglet = self._borglet()
        elif what == "garble":
            self._garble()
        elif what == "run":
            self._run(number)
        elif what == "garble answer" and self.replies:
            self._garble_answer(self.replies[-1 - number % len(self.replies)])

    def _set_task(self, what: str, index: int) -> None:
        cell = self.desk.cell
        task = cell.jobs["ann/web"].tasks[index]
        if what == "place" and task.state is State.PENDING:
            self.last_attempt += 1
            self._put(Task(index, State.RUNNING, machine="m1", attempt=self.last_attempt))
            note_move(cell, cell.jobs["ann/web"], cell.jobs["ann/web"].tasks[index], 1)
        elif what == "evict" and task.state is State.RUNNING:
            note_move(cell, cell.jobs["ann/web"], task, -1)
            self._put(Task(index, State.PENDING))
        elif what == "update" and task.state is State.RUNNING:
            # What an update in place does: the same attempt, of a version that says something else.
            job = cell.jobs["ann/web"]
            job.earlier[job.version] = Version(job.spec, 0.0, "ann")
            job.version += 1
            job.spec = spec(tasks=TASKS, labels={"version": str(job.version)})
            self._put(msgspec.structs.replace(task, version=job.version))
            cell.moves["m1"].forget()
        self._renew()

    def _put(self, task: Task) -> None:
        self.desk.cell.jobs["ann/web"].tasks[task.index] = task

    def ask(self) -> PollRequest:
        request = self.conversation.request(1.0)
        self.changes += request.change is not None
        self.requests.append(msgspec.json.decode(msgspec.json.encode(request), type=PollRequest))
        return self.requests[-1]

    def deliver(self, request: PollRequest) -> PollReply:
        self.borglet.poll(request, NOW)
        self.borglet.step(NOW)
        held = self.borglet.assignment
        assert held is None or as_bytes(held) == self.made[held.generation]
        reply = self.borglet.reply(request)
        self.replies.append(msgspec.json.decode(msgspec.json.encode(reply), type=PollReply))
        there = {(each.task, each.attempt): seen_attempt(each) for each in self.borglet.report()}
        self.reported[reply.instance, reply.report_generation] = there
        self.reports_changed += bool(reply.report and reply.report.base)
        return self.replies[-1]

    def answer(self, reply: PollReply) -> bool:
        """Take in an answer, as the poller does; return whether what it tells was believed."""
        try:
            found = self.conversation.observe(reply)
        except NotFollowed:
            self.conversation.lose()
            return False
        if found is not None:
            record_report(self.desk.cell, self.desk.observed, found, NOW)
            assert self.seen() == self.reported[reply.instance, reply.report_generation]
        self.conversation.acknowledge(reply)
        return True

    def seen(self) -> Seen:
        """Return what the master knows of the borglet's attempts."""
        there = self.desk.observed.machines["m1"].attempts
        return {key: msgspec.structs.replace(each, since=0.0) for key, each in there.items()}

    def _run(self, number: int) -> None:
        """Let a runtime say something of a run: that it goes on, or how it ended."""
        keys = sorted(self.borglet.attempts())
        if keys:
            key = keys[number % len(keys)]
            self.said += 1
            end = Exit(code=self.said) if number > 7 else None
            self.borglet.ran(key, RunState(key, 1, 7, 1.0, end, note=f"note {self.said}"), NOW)
            self.borglet.step(NOW)

    def _garble_answer(self, reply: PollReply) -> None:
        """Let a change of a report come with less than it had."""
        report = reply.report
        if report is not None and report.base and (report.attempts or report.gone):
            less = msgspec.structs.replace(report, attempts=report.attempts[1:], gone=report.gone[1:])
            self.answer(msgspec.structs.replace(reply, report=less))

    def _garble(self) -> None:
        """Let a change come with less than it had."""
        request = self.ask()
        if (change := request.change) and change.run:
            less = msgspec.structs.replace(change, run=change.run[1:])
            self.deliver(msgspec.structs.replace(request, change=less))

    def talk(self) -> PollRequest:
        """Ask, with nothing in between."""
        request = self.ask()
        self.answer(self.deliver(request))
        return request


def as_bytes(assignment: Assignment) -> set[bytes]:
    """Return what an assignment names, whatever its order."""
    return {msgspec.json.encode(each) for each in assignment.run}


@settings(max_examples=examples(300))
@given(moves)
def test_a_borglet_has_what_was_made_and_at_last_the_last(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    for what, number in steps:
        pair.move(what, number)
    for _ in range(4):  # of another instance; of an assignment it lost; of a change it does not believe
        pair.talk()
    event(f"changes sent: {min(pair.changes, 5)}")
    event(f"changes reported: {min(pair.reports_changed, 5)}")
    assert pair.seen() == {(a.task, a.attempt): seen_attempt(a) for a in pair.borglet.report()}
    held = pair.borglet.assignment
    assert held is not None
    assert held.generation == pair.conversation.generation
    last = pair.talk()
    assert last.assignment is None
    assert last.change is None


def test_one_more_task_is_sent_alone() -> None:
    pair = Pair()
    for index in range(TASKS - 1):
        pair.move("place", index)
    pair.talk()
    pair.move("place", TASKS - 1)
    pair.move("evict", 0)
    request = pair.talk()
    assert request.assignment is None
    assert request.change is not None
    assert [spec.task for spec in request.change.run] == [f"ann/web/{TASKS - 1}"]
    assert request.change.gone == ("ann/web/0@101",)


def test_what_was_made_while_another_was_under_way_is_sent_alone() -> None:
    pair = Pair()
    pair.talk()
    pair.move("place", 0)
    first = pair.ask()
    pair.move("place", 1)
    pair.answer(pair.deliver(first))
    second = pair.ask()
    assert second.change is not None
    assert [spec.task for spec in second.change.run] == ["ann/web/1"]
    assert pair.deliver(second).generation == pair.conversation.generation


def test_an_attempt_that_is_updated_in_place_is_sent_alone() -> None:
    pair = Pair()
    pair.move("place", 0)
    pair.move("place", 1)
    pair.talk()
    pair.move("update", 1)
    request = pair.ask()
    assert request.change is not None
    assert [spec.task for spec in request.change.run] == ["ann/web/1"]
    assert pair.deliver(request).generation == pair.conversation.generation


def test_a_change_that_leads_elsewhere_is_followed_by_the_whole() -> None:
    pair = Pair()
    pair.talk()
    pair.move("place", 0)
    pair.move("garble", 0)
    garbled = pair.replies[-1]
    assert garbled.generation < pair.conversation.generation
    assert garbled.digest is None
    pair.answer(garbled)
    assert pair.talk().assignment is not None
    assert pair.ask().assignment is None


@pytest.mark.parametrize("digest", [None, 4711], ids=["knows no digests", "another release"])
def test_a_borglet_that_cannot_follow_changes_gets_wholes(digest: int | None) -> None:
    pair = Pair()
    pair.move("place", 0)
    reply = pair.deliver(pair.ask())
    pair.answer(msgspec.structs.replace(reply, digest=digest))
    pair.move("place", 1)
    assert pair.ask().assignment is not None


def test_an_attempt_that_changed_is_reported_alone() -> None:
    pair = Pair()
    for index in range(TASKS):
        pair.move("place", index)
    pair.talk()
    pair.talk()
    pair.move("run", 1)
    report = reported(pair)
    assert report.base
    assert [each.task for each in report.attempts] == ["ann/web/1"]
    assert pair.borglet.attempts().keys() > {"ann/web/1@102"}


def test_an_attempt_that_is_gone_is_named() -> None:
    pair = Pair()
    pair.move("place", 0)
    pair.move("place", 1)
    pair.talk()
    pair.move("run", 0)
    pair.move("evict", 0)
    pair.talk()
    pair.move("run", 8)  # it ends
    assert [each.ended for each in reported(pair).attempts] == [Ending.KILL]
    report = reported(pair)
    assert report.base
    assert (report.attempts, report.gone) == ((), (("ann/web/0", 101),))
    assert pair.seen().keys() == {("ann/web/1", 102)}


def test_a_change_of_a_report_that_leads_elsewhere_is_not_acknowledged() -> None:
    pair = Pair()
    pair.move("place", 0)
    pair.talk()
    pair.move("run", 0)
    reply = pair.deliver(pair.ask())
    assert reply.report is not None
    assert reply.report.base
    assert not pair.answer(
        msgspec.structs.replace(reply, report=msgspec.structs.replace(reply.report, attempts=()))
    )
    again = reported(pair)
    assert not again.base
    assert len(again.attempts) == 1


def test_an_older_change_of_a_report_takes_nothing_back() -> None:
    pair = Pair()
    pair.move("place", 0)
    pair.talk()
    first, second = pair.ask(), pair.ask()
    pair.move("run", 0)
    older = pair.deliver(first)
    pair.move("run", 8)
    assert pair.answer(pair.deliver(second))
    seen = pair.seen()
    assert pair.answer(older)
    assert pair.seen() == seen


def test_a_borglet_whose_attempts_have_other_fields_reports_wholes() -> None:
    pair = Pair()
    pair.move("place", 0)
    reply = pair.deliver(pair.ask())
    assert reply.report is not None
    pair.answer(msgspec.structs.replace(reply, report=msgspec.structs.replace(reply.report, digest=4711)))
    pair.move("run", 0)
    assert not reported(pair).base


def test_a_master_that_knows_no_changes_gets_wholes() -> None:
    pair = Pair()
    pair.move("place", 0)
    pair.talk()
    pair.move("run", 0)
    report = pair.deliver(msgspec.structs.replace(pair.ask(), takes_changes=False)).report
    assert report is not None
    assert not report.base


def reported(pair: Pair) -> Report:
    """Let the master ask, and return what it is answered."""
    reply = pair.deliver(pair.ask())
    assert reply.report is not None
    pair.answer(reply)
    return reply.report
