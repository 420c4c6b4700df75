"""Alloc sets, from the job file to the machine: tasks share what is reserved, and go where it goes."""

from borgish.cell.commands import (
    CordonMachine,
    KillTasks,
    RestartTasks,
    ScaleJob,
)
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
    story.do(RestartTasks("ann/room", (0,), hurried=True), words="room/0")
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


def test_the_examples() -> None:
    story = Story()
    story.machines("m1", "m2")
    story.submit_file("allocs")
    story.submit_file("in-allocs")
    assert set(story.where("ann/allocs")) == set(story.where("ann/in-allocs")) == {"m1", "m2"}
    story.do(ScaleJob("ann/in-allocs", 5), words="in-allocs to 5")
    assert story.where("ann/in-allocs").count("") == 1  # two in each
    story.end("allocs-examples")


def test_devices_ports_and_rules_inside() -> None:
    story = Story()
    story.machines("m1", "m2", devices={"gpu": 3})
    story.submit(
        """
        name: lab
        kind: alloc_set
        tasks: 2
        resources: {cpu: 1, ram: 1GiB, devices: {gpu: 2}}
        constraints: [not present(gone)]
        """
    )
    story.submit(
        """
        name: halves
        in: lab
        tasks: 3
        run: [train]
        resources: {cpu: 100m, ram: 64MiB, devices: {gpu: 0.5}}
        """
    )
    story.submit(
        """
        name: wholes
        in: lab
        tasks: 3
        run: [train]
        resources: {cpu: 100m, ram: 64MiB, devices: {gpu: 1}}
        """
    )
    assert story.where("ann/wholes").count("") == 1
    jobs = story.core.cell.jobs
    for task in (*jobs["ann/halves"].tasks, *jobs["ann/wholes"].tasks):
        if task.alloc >= 0:
            assert set(task.devices) <= set(jobs["ann/lab"].tasks[task.alloc].devices)
    story.submit(
        """
        name: one-a-machine
        in: lab
        tasks: 3
        run: [serve]
        fixed_ports: {metrics: 9100}
        resources: {cpu: 100m, ram: 64MiB}
        """
    )
    assert story.where("ann/one-a-machine").count("") == 1
    story.submit(
        """
        name: outside
        run: [serve]
        fixed_ports: {metrics: 9100}
        resources: {cpu: 100m, ram: 64MiB}
        """
    )
    assert story.where("ann/outside") == [""]  # ports are the machine's
    story.submit(
        """
        name: pair
        in: lab
        tasks: 2
        gang: true
        run: [serve]
        resources: {cpu: 400m, ram: 64MiB}
        spread: [{max: 1}]
        """
    )
    assert set(story.where("ann/pair")) == {"m1", "m2"}
    story.end("allocs-things")


SHELTER = """
    name: shelter
    kind: alloc_set
    tasks: 1
    resources: {cpu: 3, ram: 1GiB}
"""
GUEST = """
    name: guest
    in: shelter
    run: [serve]
    priority: PRIORITY
    resources: {cpu: 2, ram: 64MiB}
"""
PROD = """
    name: prod
    run: [serve]
    priority: production
    resources: {cpu: 3, ram: 1GiB}
"""


def test_an_alloc_is_preempted_with_what_is_in_it() -> None:
    story = Story()
    story.machine("m1")
    story.submit(SHELTER)
    story.submit(GUEST.replace("PRIORITY", "batch"))
    story.all_report()
    story.submit(PROD)
    assert story.where("ann/guest") == story.where("ann/prod") == [""]  # its program has yet to end
    story.leave("m1")
    assert story.where("ann/prod") == ["m1"]
    story.end("allocs-preempted")


def test_an_alloc_with_production_in_it_is_as_safe_as_production() -> None:
    story = Story()
    story.machine("m1")
    story.submit(SHELTER)
    story.submit(GUEST.replace("PRIORITY", "production"))
    story.submit(PROD)
    assert story.where("ann/prod") == [""]
    story.do(KillTasks("ann/guest"), words="guest")
    story.wait(1.0)
    story.show()
    assert story.where("ann/prod") == ["m1"]
    story.end("allocs-shelter")
