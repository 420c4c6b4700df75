"""Whatever is lost, comes twice or in another order: a borglet never has anything but an assignment that was
made, and in the end it has the last one."""

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from borgish.borglet.core import BorgletCore
from borgish.cell.commands import SubmitJob
from borgish.cell.lifecycle import note_move
from borgish.cell.model import Task, Version
from borgish.clock import Now
from borgish.link.conversation import Conversation
from borgish.resources import Resources
from borgish.vocabulary import Runtime, State
from borgish.wire.link import Assignment, Facts, PollReply, PollRequest
from tests.profiles import examples
from tests.unit.cell.test_decide import Desk, spec

NOW = Now(100.0, 1.0)
FACTS = Facts(Resources(1000), {}, (Runtime.PROCESS,), 1, 2)
TASKS = 4

OFTEN = ("place", "place", "evict", "update", "ask", "deliver", "deliver", "answer", "answer", "talk", "talk")
SELDOM = ("fail", "start again", "garble", "garble")
moves = st.lists(
    st.tuples(st.sampled_from((*OFTEN, *OFTEN, *SELDOM)), st.integers(0, 9)), min_size=10, max_size=60
)


class Pair:
    """A conversation and a borglet. Messages stay in the network, which delivers any of them at any time."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.desk.do(SubmitJob(spec(tasks=TASKS)))
        self.last_attempt = 100
        self.conversation = Conversation(self.desk.cell, self.desk.observed, "m1")
        self.requests: list[PollRequest] = []
        self.replies: list[PollReply] = []
        self.made: dict[int, set[bytes]] = {}
        self.changes = 0
        self.instance = 0
        self.borglet = self._borglet()
        self._renew()

    def _borglet(self) -> BorgletCore:
        return BorgletCore("m1", "b1", f"i{self.instance}", FACTS, now=NOW)

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
        self.replies.append(self.borglet.reply(request))
        return self.replies[-1]

    def answer(self, reply: PollReply) -> None:
        self.conversation.observe(reply)
        self.conversation.acknowledge(reply)

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


def test_a_borglet_that_knows_no_digests_gets_wholes() -> None:
    pair = Pair()
    pair.move("place", 0)
    reply = pair.deliver(pair.ask())
    pair.answer(msgspec.structs.replace(reply, digest=None))
    pair.move("place", 1)
    assert pair.ask().assignment is not None


def test_a_borglet_of_another_release_is_not_asked_in_vain() -> None:
    pair = Pair()
    pair.move("place", 0)
    reply = pair.deliver(pair.ask())
    pair.answer(msgspec.structs.replace(reply, digest=4711))
    pair.move("place", 1)
    assert pair.ask().assignment is not None
