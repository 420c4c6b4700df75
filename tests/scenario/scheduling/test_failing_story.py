"""Services that fail where they are, and machines that go down again and again."""

import msgspec

from borgish.cell.commands import (
    Observe,
    SeenAttempt,
)
from borgish.master.step import CommandRequest
from borgish.vocabulary import Ending, Phase
from tests.scenario.scheduling.story import Story, running


def fails(story: Story, job: str, index: int) -> None:
    """Let a task's machine give it up."""
    gave_up = {"gave_up": True, "exit_code": 1, "reason": "exit code 1; failed 5 times within 10 min"}
    report(story, job, index, msgspec.structs.replace(last(story, job, index, Ending.FAIL), **gave_up))


def crashes(story: Story, job: str, index: int, early_ends: int) -> None:
    """Let a task have ended early so often, and wait for its next start."""
    seen = last(story, job, index)
    looping = {"phase": Phase.CRASH_LOOPING, "early_ends": early_ends, "exit_code": 1}
    report(story, job, index, msgspec.structs.replace(seen, **looping))


def last(story: Story, job: str, index: int, ended: Ending | None = None) -> SeenAttempt:
    found = story.core.cell.jobs[job]
    return running(story.core.cell, found, found.tasks[index], ended)


def report(story: Story, job: str, index: int, seen: SeenAttempt) -> None:
    name = story.core.cell.jobs[job].tasks[index].machine
    story.tell(f"{name}: {job}/{index} ended early {seen.early_ends or 5} times")
    story.step(CommandRequest(2, Observe(name, "boot", name, (seen,)), name))
    story.show()


def pass_by(story: Story, seconds: int) -> None:
    story.tell(f"{seconds} seconds pass")
    for _ in range(seconds):
        story.wait(1.0)
    story.show()


def test_a_service_gets_away_is_held_and_goes_on_when_it_is_mended() -> None:
    story = Story()
    story.machines("m1", "m2", "m3")
    story.submit_file("retried")
    first = story.where("ann/retried")
    fails(story, "ann/retried", 0)
    assert story.where("ann/retried")[0] not in ("", first[0])
    fails(story, "ann/retried", 0)
    fails(story, "ann/retried", 0)  # on the third machine: it is held
    pass_by(story, 2)
    assert story.where("ann/retried") == ["", first[1]]
    story.tell(story.core.refusals["ann/retried"][0].hint)
    pass_by(story, 60)
    assert story.where("ann/retried")[0]
    crashes(story, "ann/retried", 0, early_ends=1)  # the trial
    assert story.where("ann/retried")[0] == ""
    pass_by(story, 61)
    story.all_report()
    pass_by(story, 32)  # this one runs well
    assert story.core.cell.jobs["ann/retried"].held is None
    pass_by(story, 600)
    assert story.core.cell.failing == {}
    story.end("failing-held")


def test_where_no_other_machine_fits_it_is_backed_off() -> None:
    story = Story()
    story.machine("m1")
    story.machines("m2", "m3", cpu=1)
    story.submit("name: web\nrun: [serve]\nresources: {cpu: 3}")
    crashes(story, "ann/web", 0, early_ends=6)
    crashes(story, "ann/web", 0, early_ends=7)
    story.leave("m1")
    pass_by(story, 59)
    assert story.where("ann/web") == [""]
    pass_by(story, 1)
    assert story.where("ann/web") == ["m1"]
    story.end("failing-backed-off")


def test_a_flapping_machine_gets_nothing_new() -> None:
    story = Story()
    story.machine("m1")
    story.machines("m2", "m3", "m4", cpu=1)
    story.submit("name: large\nrun: [serve]\nresources: {cpu: 3}")
    for _ in range(3):
        story.fall_silent("m1")
        story.tell("m1 answers again")
        pass_by(story, 12)
    assert story.where("ann/large") == [""]
    pass_by(story, 600)
    assert story.where("ann/large") == ["m1"]
    story.end("machines-flapping")
