"""Who has their turn first, and who is told to ask again."""

import asyncio
from collections.abc import Iterable

import pytest

from borgish.cell.access.model import Asker, Principal, Role
from borgish.cell.command import Command
from borgish.cell.commands import CordonMachine, KillTasks, Observe, SubmitJob
from borgish.errors import TooManyRequests
from borgish.master import inbox as inbox_module
from borgish.master.inbox import Inbox
from borgish.master.step import CommandRequest, Input
from borgish.spec.job import JobSpec
from borgish.wire.api import Accepted


def asker(name: str) -> Asker:
    return Asker(Principal(name, Role.USER))


def submission(name: str, tasks: int = 1) -> SubmitJob:
    return SubmitJob(JobSpec("j", name, tasks, ("serve",)))


async def hand_in(inbox: Inbox, user: str, commands: Iterable[Command]) -> list[asyncio.Task[Accepted]]:
    tasks = [asyncio.create_task(inbox.ask(command, user, asker=asker(user))) for command in commands]
    await asyncio.sleep(0)
    return tasks


def who(inputs: Iterable[Input]) -> list[str]:
    return [each.actor for each in inputs if isinstance(each, CommandRequest)]


async def test_one_who_submits_much_holds_up_nobody() -> None:
    inbox = Inbox()
    asked = await hand_in(inbox, "ann", (submission("ann") for _ in range(5)))
    asked += await hand_in(inbox, "bob", [submission("bob")])
    asked += await hand_in(inbox, "cid", (submission("cid") for _ in range(2)))
    assert who(inbox.take(lambda: True)) == ["ann", "bob", "cid", "ann", "cid", "ann", "ann", "ann"]


async def test_what_has_no_time_is_left_to_the_next_turn_which_is_soon() -> None:
    inbox = Inbox()
    asked = await hand_in(inbox, "ann", (submission("ann") for _ in range(3)))
    turns = []
    for _ in range(3):
        await asyncio.wait_for(inbox.arrival(60.0), 5.0)
        turns.append(who(inbox.take(lambda: False)))
    assert turns == [["ann"]] * 3
    assert len(asked) == 3


async def test_large_jobs_come_one_a_turn_and_hold_up_nothing_else() -> None:
    inbox = Inbox()
    asked = await hand_in(inbox, "ann", (submission("ann", tasks=10_000) for _ in range(2)))
    asked += await hand_in(inbox, "bob", [submission("bob")])
    asked += await hand_in(inbox, "bob", (KillTasks("bob/j") for _ in range(3)))
    turns = []
    for _ in range(2):
        await asyncio.wait_for(inbox.arrival(60.0), 5.0)
        turns.append(who(inbox.take(lambda: True)))
    assert turns == [["bob", "ann", "bob", "bob"], ["bob", "ann"]]
    assert len(asked) == 6


async def test_neither_commands_nor_reports_nor_submissions_hold_up_each_other() -> None:
    inbox = Inbox()
    asked = await hand_in(inbox, "ann", (submission("ann") for _ in range(2)))
    reports = [asyncio.create_task(inbox.observe(Observe(name, "b", "i", ()))) for name in ("m1", "m2")]
    asked += await hand_in(inbox, "ann", (KillTasks("ann/j"), CordonMachine("m1")))
    taken = [each.command for each in inbox.take(lambda: False) if isinstance(each, CommandRequest)]
    assert [type(command) for command in taken] == [KillTasks, Observe, SubmitJob]
    assert len(who(inbox.take(lambda: True))) == 3
    assert len(asked) + len(reports) == 6


async def test_who_waits_too_long_is_told_to_ask_again_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox, kept = Inbox(), inbox_module.WAIT_SECONDS_MAX
    asked = await hand_in(inbox, "ann", [submission("ann"), submission("ann")])
    assert inbox.busy() == ()
    let_pass(monkeypatch, kept + 3.5)
    with pytest.raises(TooManyRequests, match="this cell is busy: what ann has asked for waits") as refused:
        await inbox.ask(submission("ann"), "ann", asker=asker("ann"))
    assert refused.value.retry_after_seconds == inbox_module.RETRY_SECONDS_MAX
    assert inbox.busy() == ("no more work of ann is taken in: 2 commands wait, the first for 6 s",)
    asked += await hand_in(inbox, "bob", [submission("bob")])
    asked += await hand_in(inbox, "ann", [KillTasks("ann/j")])
    assert who(inbox.take(lambda: True)) == ["ann", "ann", "bob", "ann"]
    assert inbox.busy() == ()
    asked += await hand_in(inbox, "ann", [submission("ann")])
    assert who(inbox.take(lambda: True)) == ["ann"]
    assert len(asked) == 5


def let_pass(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let time pass for the inbox."""
    loop = asyncio.get_running_loop()
    time = loop.time
    patch.setattr(loop, "time", lambda: time() + seconds)
