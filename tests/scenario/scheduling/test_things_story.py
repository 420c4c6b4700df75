"""Devices, ports and programs side by side, from the job file to the machine."""

import pytest

from borgish.cell.commands import KillTasks
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.schedule import SchedulerSettings
from tests.scenario.scheduling.story import Story


def test_devices_whole_and_in_part() -> None:
    story = Story()
    story.machine("m1", devices={"gpu": 2})
    story.machine("m2", devices={"gpu": 1})
    story.submit_file("devices")  # two whole ones each
    assert story.where("ann/devices") == ["m1", ""]
    story.submit(
        """
        name: parts
        tasks: 3
        run: [train]
        resources: {cpu: 100m, ram: 64MiB, devices: {gpu: 0.4}}
        """
    )
    assert story.where("ann/parts") == ["m2", "m2", ""]
    assert {task.devices for task in story.core.cell.jobs["ann/parts"].tasks[:2]} == {("gpu:0",)}
    story.do(KillTasks("ann/devices"), words="devices")
    story.submit(
        """
        name: whole
        run: [train]
        resources: {cpu: 100m, ram: 64MiB, devices: {gpu: 1}}
        """
    )
    first, second = (story.core.cell.jobs[job].tasks for job in ("ann/parts", "ann/whole"))
    assert (first[2].machine, second[0].machine) == ("m1", "m1")
    assert first[2].devices != second[0].devices
    story.end("devices")


def test_ports_by_number() -> None:
    story = Story()
    story.machines("m1", "m2")
    story.submit(
        """
        name: metrics
        tasks: 3
        run: [serve, "{{port.http}}", "{{port.metrics}}"]
        ports: [http]
        fixed_ports: {metrics: 9100}
        resources: {cpu: 100m, ram: 64MiB}
        """
    )
    assert sorted(story.where("ann/metrics")) == ["", "m1", "m2"]
    story.submit(
        """
        name: other
        run: [serve]
        fixed_ports: {f: 9101}
        resources: {cpu: 100m, ram: 64MiB}
        """
    )
    assert "" not in story.where("ann/other")
    story.end("ports")


def test_programs_of_one_task_are_placed_as_one() -> None:
    story = Story()
    story.machines("m1", "m2", gib=1)
    story.submit_file("sidecar")
    cell = story.core.cell
    (task,) = cell.jobs["ann/sidecar"].tasks
    assert len(cell.placed[task.machine]) == 1
    story.end("group")


@pytest.mark.parametrize("policy", ["best_fit", "worst_fit", "hybrid"])
def test_policies(policy: str) -> None:
    """The same jobs by each policy: filled up, spread out, and in balance of cpu and ram."""
    assert policy in POLICIES
    story = Story(scheduling=SchedulerSettings(policy))
    story.machines("m1", "m2", "m3", cpu=4, gib=4)
    for name, cpu, ram in (("first", 2, "1GiB"), ("second", 1, "2GiB"), ("third", 1, "512MiB")):
        story.submit(
            f"""
            name: {name}
            run: [work]
            resources: {{cpu: {cpu}, ram: {ram}}}
            """
        )
    used = {story.where(f"ann/{name}")[0] for name in ("first", "second", "third")}
    assert len(used) == {"best_fit": 1, "worst_fit": 3, "hybrid": 1}[policy]
    story.end(f"policy-{policy}")
