"""Machines that are marked or change under their tasks, and what a placed task is told of its place."""

from borgish.cell.commands import (
    DrainMachines,
    Observe,
    TaintMachine,
    UndrainMachines,
    UntaintMachine,
)
from borgish.link.conversation import Outgoing
from borgish.master.step import CommandRequest
from borgish.vocabulary import TaintEffect, task_name
from tests.scenario.scheduling.story import Story

PATIENT = """
    name: patient
    tasks: 1
    run: [serve]
    constraints: [zone == z1]
    tolerations: [{taint: repair, for: 10m}]
"""
HASTY = """
    name: hasty
    tasks: 2
    run: [serve]
    constraints: [zone == z1]
"""

TRAIN = """
    name: train
    run: [train, "{{port.http}}"]
    resources: {cpu: 1, ram: 1GiB, devices: {gpu: 2}}
    ports: [http]
    fixed_ports: {metrics: 9100}
    group: {shipper: {run: [ship, "{{port.metrics}}"]}}
"""


def change(story: Story, machine: str, **attributes: str) -> None:
    """Let a machine say that it has other attributes."""
    shown = ", ".join(f"{key} {value}" for key, value in attributes.items())
    story.tell(f"{machine} says: {shown}")
    said = Observe(machine, "boot", machine, (), attributes=attributes)
    story.step(CommandRequest(2, said, machine))
    story.wait(1.0)
    story.show()


def told(story: Story, job: str, *names: str) -> None:
    """Write down what the machine of a job's first task gives to its program."""
    task = story.core.cell.jobs[job].tasks[0]
    assignment = Outgoing(story.core.cell, task.machine).assignment(story.core.observed, 1, story.now)
    (spec,) = (each for each in assignment.run if each.task == task_name(job, 0))
    shown = [f"{name}={spec.env[name]}" for name in names]
    story.tell(f"  {spec.task} is told: {' '.join([*spec.run, *shown])}")
    story.tell(*(f"    beside it {each.name}: {' '.join(each.run)}" for each in spec.programs))


def test_taints_keep_away_send_away_and_are_tolerated_for_a_while() -> None:
    story = Story()
    story.machines("m1", "m2", zone="z1")
    story.machine("m3", zone="z2")
    story.do(TaintMachine("m2", "repair"), words="m2 repair")
    story.submit(PATIENT)
    story.submit(HASTY)
    assert story.where("ann/hasty") == ["m1", "m1"]
    story.do(UntaintMachine("m2", "repair"), words="m2 repair")
    on = story.where("ann/patient")[0]
    story.do(TaintMachine("m1", "repair", "disk", TaintEffect.EVICT), words="m1 repair=disk, evict")
    story.wait(1.0)
    story.show()
    assert story.where("ann/hasty") == ["m2", "m2"]
    story.tell("nine minutes pass")
    story.wait(540.0)
    story.show()
    assert story.where("ann/patient") == [on]
    story.do(TaintMachine(on, "repair", "fan", TaintEffect.EVICT), words=f"{on} repair=fan, evict")
    story.tell("ten minutes pass")
    story.wait(600.0)
    story.wait(1.0)
    story.show()
    assert story.where("ann/patient") == [""]  # it tolerates no such taint where it is not already
    story.end("machines-tainted")


def test_a_machine_is_drained_one_task_at_a_time_and_given_back() -> None:
    story = Story()
    story.machines("m1", "m2")
    story.submit("name: web\ntasks: 4\nrun: [serve]\nspread: [{max: 2}]")
    story.submit("name: sum\ntasks: 1\nrun: [add]\nrestart: {policy: on_failure}")
    story.all_report()
    on = story.where("ann/sum")[0]
    story.machine("m3")
    story.all_report()
    story.do(DrainMachines((on,), reason="new disk", deadline_seconds=600.0), words=f"{on}, for a new disk")
    for _ in range(3):
        story.wait(1.0)
        story.all_report()
    story.show()
    assert on not in story.where("ann/web")
    assert story.where("ann/sum") == [on]
    story.tell("ten minutes pass")
    story.wait(600.0)
    story.wait(1.0)
    story.show()
    assert on not in story.where("ann/sum")
    story.do(UndrainMachines((on,)), words=on)
    story.submit("name: more\ntasks: 3\nrun: [serve]\nspread: [{max: 1}]")
    assert on in story.where("ann/more")
    story.end("machine-drained")


def test_a_machine_that_changes_moves_those_who_asked_for_it() -> None:
    story = Story()
    story.machine("m1", zone="z1")
    story.submit("name: moves\nrun: [serve]\nconstraints: [zone == z1]\nrecheck: evict")
    story.submit("name: stays\nrun: [serve]\nconstraints: [zone == z1]")
    change(story, "m1", zone="z9")
    assert (story.where("ann/moves"), story.where("ann/stays")) == ([""], ["m1"])
    change(story, "m1", zone="z1")
    assert story.where("ann/moves") == ["m1"]
    story.end("machines-changed")


def test_a_task_is_told_its_devices_ports_and_programs() -> None:
    story = Story()
    story.machine("m1", devices={"gpu": 4})
    story.submit(TRAIN)
    names = ("PORT_HTTP", "PORT_METRICS", "BORGISH_DEVICES_GPU", "CUDA_VISIBLE_DEVICES")
    told(story, "ann/train", *names)
    story.submit("name: part\nrun: [infer]\nresources: {devices: {gpu: 0.5}}")
    told(story, "ann/part", "BORGISH_DEVICES_GPU", "BORGISH_DEVICE_MILLIS_GPU")
    story.submit("name: second\nrun: [serve]\nfixed_ports: {metrics: 9100}")
    story.end("machines-told")


def test_what_is_preempted_gets_the_notice_that_the_preemptor_leaves_it() -> None:
    story = Story()
    story.machine("m1", cpu=2)
    story.submit("name: low\nrun: [sum]\nresources: {cpu: 2}\nstop: {grace: 5m}")
    story.all_report()
    story.submit("name: high\nrun: [serve]\npriority: production\nresources: {cpu: 2}\npreempt_within: 3s")
    story.all_report()
    assignment = Outgoing(story.core.cell, "m1").assignment(story.core.observed, 1, story.now)
    (order,) = assignment.stop
    assert (order.task, order.grace_seconds) == ("ann/low/0", 3.0)
    story.leave("m1")
    assert story.where("ann/high") == ["m1"]
    story.end("machines-hurried")
