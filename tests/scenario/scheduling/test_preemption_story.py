"""Who has to leave for whom, and what is kept meanwhile; and gangs. From the job file to the machine."""

import msgspec

from borgish.cell.commands import KillTasks
from borgish.cell.model import Cell, Snapshot
from borgish.link.conversation import Outgoing
from borgish.master.core import Core
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import State
from tests.scenario.scheduling.story import Story

LOW = """
    name: low
    tasks: 2
    run: [work]
    stop: {grace: 60s}
    resources: {cpu: 4, ram: 1GiB}
    """


def full() -> Story:
    """Two machines that are full of tasks of the free band, which run."""
    story = Story()
    story.machines("m1", "m2")
    story.submit(LOW)
    story.all_report()
    return story


def test_production_takes_the_place_of_free_when_that_has_left() -> None:
    story = full()
    story.submit_file("preemptor")
    (victim,) = (task for task in story.core.cell.jobs["ann/low"].tasks if task.reason)
    (machine,) = story.core.cell.promised  # one victim makes room for both
    story.tell("nothing moves while the victim is still seen there:")
    story.report(machine)
    story.wait(5.0)
    story.show()
    assert story.where("ann/preemptor") == ["", ""]
    orders = Outgoing(story.core.cell, machine).assignment(story.core.observed, 1, story.now).stop
    assert [(order.task, order.grace_seconds) for order in orders] == [(f"ann/low/{victim.index}", 5.0)]
    story.submit("name: small\nrun: [true]\nresources: {cpu: 1, ram: 64MiB}", "bob")
    assert story.where("bob/small") == [""]  # the kept place is nobody else's
    story.leave(machine)
    assert story.where("ann/preemptor") == [machine, machine]
    assert story.where("bob/small") == [machine]
    story.end("preemption")


def test_nobody_leaves_for_an_equal_nor_within_production() -> None:
    story = Story()
    story.machine("m1")
    for name, priority in (("lower", "production"), ("higher", "299"), ("monitor", "monitoring")):
        story.submit(
            f"""
            name: {name}
            run: [work]
            priority: {priority}
            resources: {{cpu: 3, ram: 1GiB}}
            """
        )
    assert story.where("ann/lower") == ["m1"]
    story.do(KillTasks("ann/lower"), words="lower")
    story.do(KillTasks("ann/monitor"), words="monitor")
    story.do(KillTasks("ann/higher"), words="higher")
    for name, priority in (("batch", "150"), ("equal", "150"), ("above", "151")):
        story.submit(
            f"""
            name: {name}
            run: [work]
            priority: {priority}
            resources: {{cpu: 3, ram: 1GiB}}
            """
        )
    story.wait(1.0)
    story.show()
    assert story.where("ann/above") == ["m1"]
    story.end("preemption-bounds")


def test_few_and_cheap_victims() -> None:
    """One machine would lose two tasks, one a batch task, one a free one."""
    story = Story()
    story.machines("m1", "m2", "m3")
    story.submit("name: batch\nrun: [work]\npriority: batch\nresources: {cpu: 3, ram: 1GiB}")
    story.submit(
        """
        name: pair
        tasks: 2
        run: [work]
        resources: {cpu: 2, ram: 1GiB}
        near: [{labels: app == pair}]
        labels: {app: pair}
        """
    )
    story.submit("name: one\nrun: [work]\nresources: {cpu: 3, ram: 1GiB}")
    before = story.where("ann/one")
    story.submit("name: prod\nrun: [serve]\npriority: production\nresources: {cpu: 3, ram: 1GiB}")
    story.wait(1.0)
    story.show()
    assert story.where("ann/prod") == before
    story.end("preemption-cheap")


def test_a_gang_waits_for_room_for_all() -> None:
    story = Story()
    story.machines("m1", "m2", cpu=1)
    story.submit(
        "name: half\ntasks: 2\nrun: [work]\npriority: production\nresources: {cpu: 850m, ram: 64MiB}"
    )
    story.submit_file("gang")
    assert story.where("ann/gang") == ["", "", ""]
    story.do(KillTasks("ann/half", (0,)), words="half/0")
    assert "" not in story.where("ann/gang")
    story.end("gang")


def test_a_gang_preempts_for_all_or_for_none() -> None:
    story = Story()
    story.machines("m1", "m2", cpu=1)
    story.submit("name: low\ntasks: 2\nrun: [work]\nresources: {cpu: 950m, ram: 64MiB}")
    story.all_report()
    story.submit(
        """
        name: large
        tasks: 3
        gang: true
        run: [work]
        priority: production
        resources: {cpu: 600m, ram: 64MiB}
        """
    )
    assert "" not in story.where("ann/low")  # two would fit, and nobody leaves for two
    story.do(KillTasks("ann/large"), words="large")
    story.submit(
        """
        name: pair
        tasks: 2
        gang: true
        run: [work]
        priority: production
        resources: {cpu: 600m, ram: 64MiB}
        """
    )
    story.leave("m1")
    assert story.where("ann/pair") == ["", ""]  # not one of them alone
    story.leave("m2")
    assert "" not in story.where("ann/pair")
    story.end("gang-preempts")


def test_a_preemption_goes_on_under_the_next_master() -> None:
    """The one before ended when the victim was told to, and before anybody was placed."""
    story = full()
    story.submit_file("preemptor")
    (victim,) = (task for task in story.core.cell.jobs["ann/low"].tasks if task.reason)
    (machine,) = story.core.cell.promised
    story.report(machine)
    story.submit("name: small\nrun: [true]\nresources: {cpu: 1, ram: 64MiB}", "bob")
    assert (story.where("ann/preemptor"), story.where("bob/small")) == (["", ""], [""])

    snapshot = msgspec.json.decode(msgspec.json.encode(story.core.cell.snapshot()), type=Snapshot)
    story.core = Core(Cell(snapshot), ReconcileSettings(), story.now)
    story.core.begin(2, "the next", story.now)
    assert story.core.cell.promised.keys() == {machine}
    story.wait(0.1)
    assert story.where("ann/preemptor") == [machine, machine]
    waiting = story.core.cell.jobs["ann/low"].tasks[victim.index]
    assert (waiting.state, waiting.attempt) == (State.PENDING, victim.attempt)
