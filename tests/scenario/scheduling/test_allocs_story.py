"""Alloc sets, from the job file to the machine: tasks share what is reserved, and go where it goes."""

from borgish.cell.commands import CordonMachine, KillTasks, RestartTasks, ScaleJob
from tests.scenario.scheduling.story import Story

ROOM = """
    name: room
    kind: alloc_set
    tasks: 2
    priority: production
    resources: {cpu: 2, ram: 2GiB}
"""
SERVER = """
    name: server
    in: room
    tasks: 2
    run: [serve]
    ports: [http]
    priority: production
    resources: {cpu: 1500m, ram: 1GiB}
"""
SHIPPER = """
    name: shipper
    in: room
    tasks: 3
    run: [ship]
    resources: {cpu: 500m, ram: 512MiB}
"""


def moved_in() -> Story:
    story = Story()
    story.machines("m1", "m2", "m3")
    story.submit(ROOM)
    story.submit(SERVER)
    story.submit(SHIPPER)
    story.all_report()
    return story


def test_tasks_share_what_an_alloc_set_reserves() -> None:
    story = moved_in()
    room = story.where("ann/room")
    assert sorted(story.where("ann/server")) == sorted(room)
    assert story.where("ann/shipper")[2] == ""  # two cpus are two cpus
    story.do(ScaleJob("ann/room", 3), words="room to 3")
    assert "" not in story.where("ann/shipper")
    story.end("allocs-shared")


def test_an_alloc_that_moves_takes_its_tasks_with_it() -> None:
    story = moved_in()
    before = story.where("ann/room")[0]
    story.do(CordonMachine(before), words=f"{before}, where room/0 is")
    story.do(RestartTasks("ann/room", (0,)), words="room/0")
    assert before not in story.where("ann/server")
    story.all_report()
    story.leave(before)
    story.fall_silent(story.where("ann/room")[1])
    assert "" not in [*story.where("ann/room"), *story.where("ann/server")]
    story.end("allocs-moved")


def test_without_their_alloc_tasks_wait() -> None:
    story = moved_in()
    story.do(ScaleJob("ann/room", 1), words="room to 1")
    story.do(KillTasks("ann/room"), words="room")
    story.wait(25 * 3600.0)
    story.wait(2.0)
    story.show()
    story.submit("name: server\nin: room\nrun: [serve]", "bob")
    story.submit(ROOM)
    assert "" not in story.where("ann/server")
    story.end("allocs-gone")


def test_what_is_no_alloc_set_of_ones_own_is_refused() -> None:
    story = Story()
    story.machine("m1")
    story.submit("name: server\nin: room\nrun: [serve]")
    story.submit("name: plain\nrun: [serve]")
    story.submit("name: server\nin: plain\nrun: [serve]")
    story.submit(ROOM, "bob")
    story.submit("name: server\nin: bob/room\nrun: [serve]")
    story.do(KillTasks("bob/room"), "bob", "room")
    story.submit("name: server\nin: room\nrun: [serve]", "bob")
    story.end("allocs-refused")
