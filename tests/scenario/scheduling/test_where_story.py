"""Constraints, preferences, spread and affinity, from the job file to the machine."""

from borgish.cell.commands import (
    KillTasks,
    ScaleJob,
)
from tests.scenario.scheduling.story import Story


def racks() -> Story:
    """Two machines in each of two racks of two zones, and one without any."""
    story = Story()
    for number, disk in ((1, "ssd"), (2, "hdd"), (3, "ssd"), (4, "hdd")):
        rack = (number + 1) // 2
        story.machine(f"m{number}", rack=f"r{rack}", zone=f"z{rack}", disk=disk, cores=str(8 * number))
    story.machine("m5", arch="arm64")
    return story


def test_conditions_on_machines() -> None:
    story = racks()
    for number, condition in enumerate(
        [
            "rack == r1",
            "rack != r1",
            "cores < 16",
            "cores <= 16",
            "cores > 24",
            "cores >= 24",
            "present(arch)",
            "not present(rack)",
            "rack in (r1, r9)",
            "rack not in (r1, r2)",
        ]
    ):
        story.tell("", f"# {condition}")
        story.submit(
            f"""
            name: j{number}
            tasks: 2
            run: [sleep, "1000"]
            resources: {{cpu: 10m, ram: 16MiB}}
            constraints: ["{condition}"]
            """
        )
    expected = {
        "ann/j0": {"m1", "m2"},
        "ann/j1": {"m3", "m4", "m5"},
        "ann/j2": {"m1"},
        "ann/j3": {"m1", "m2"},
        "ann/j4": {"m4"},
        "ann/j5": {"m3", "m4"},
        "ann/j6": {"m5"},
        "ann/j7": {"m5"},
        "ann/j8": {"m1", "m2"},
        "ann/j9": {"m5"},
    }
    assert all(set(story.where(job)) <= machines for job, machines in expected.items())
    story.tell("", "# contradictory, and an attribute that no machine has: accepted, and said so")
    story.submit('name: never\nrun: [true]\nconstraints: ["rack == r1", "rack == r2"]')
    story.submit('name: slip\nrun: [true]\nconstraints: ["rak == r1"]')
    assert story.where("ann/never") == story.where("ann/slip") == [""]
    story.end("constraints")


def test_liked_machines() -> None:
    story = racks()
    story.submit(
        """
        name: fast
        tasks: 3
        run: [sleep, "1000"]
        resources: {cpu: 2, ram: 1GiB}
        prefer:
          - {when: disk == ssd, weight: 10}
          - {when: rack == r2, weight: 3}
        """
    )
    assert set(story.where("ann/fast")[:2]) == {"m1", "m3"}
    assert story.where("ann/fast")[0] == "m3"
    story.end("prefer")


def test_spread_by_a_maximum_and_evenly() -> None:
    story = racks()
    story.submit_file("spread")
    assert sorted(story.where("ann/spread")) == ["m1", "m2", "m3", "m4"]
    story.do(ScaleJob("ann/spread", 5), words="spread to 5")
    assert story.where("ann/spread")[4] == ""
    story.submit(
        """
        name: even
        tasks: 4
        run: [sleep, "1000"]
        resources: {cpu: 100m, ram: 64MiB}
        constraints: [present(zone)]
        spread: [{over: zone}]
        """
    )
    zones = [story.core.cell.machines[name].attributes["zone"] for name in story.where("ann/even")]
    assert sorted(zones) == ["z1", "z1", "z2", "z2"]
    story.end("spread")


NOISY = """
    name: noisy
    run: [make, noise]
    resources: {cpu: 100m, ram: 64MiB}
    labels: {app: noisy}
    constraints: [rack == r1, disk == ssd]
    """


def test_near_and_apart() -> None:
    story = racks()
    story.submit(
        """
        name: cache
        run: [cache]
        resources: {cpu: 100m, ram: 64MiB}
        labels: {app: cache}
        constraints: [zone == z2]
        """
    )
    story.submit(
        """
        name: must-be-near
        tasks: 2
        run: [serve]
        resources: {cpu: 100m, ram: 64MiB}
        near: [{labels: app == cache, over: rack}]
        """
    )
    assert set(story.where("ann/must-be-near")) == {"m3", "m4"}
    story.submit(
        """
        name: likes-to-be-near
        tasks: 4
        run: [serve]
        resources: {cpu: 3, ram: 1GiB}
        near: [{labels: app == cache, over: rack, weight: 50}]
        """
    )
    assert set(story.where("ann/likes-to-be-near")[:2]) == {"m3", "m4"}
    assert "" not in story.where("ann/likes-to-be-near")
    story.submit(
        """
        name: waits-for-a-friend
        run: [serve]
        resources: {cpu: 100m, ram: 64MiB}
        near: [{labels: app == friend}]
        """
    )
    story.submit(
        """
        name: friend
        run: [serve]
        resources: {cpu: 100m, ram: 64MiB}
        labels: {app: friend}
        """
    )
    story.wait(1.0)
    story.show()
    assert story.where("ann/waits-for-a-friend") == story.where("ann/friend")
    story.end("near")


def test_apart_holds_for_both_sides() -> None:
    """A newcomer does not join what has to be apart from it, though it asks for nothing itself."""
    story = racks()
    story.submit_file("spread")
    story.submit(NOISY)
    assert story.where("ann/noisy") == [""]
    story.do(KillTasks("ann/spread"), words="spread")
    assert story.where("ann/noisy") == ["m1"]
    story.submit_file("spread")
    assert "m1" not in story.where("ann/spread")
    story.submit(
        """
        name: would-rather-not
        tasks: 5
        run: [serve]
        resources: {cpu: 100m, ram: 64MiB}
        apart: [{labels: app == noisy, over: rack, weight: 100}]
        """
    )
    assert not {"m1", "m2"} & set(story.where("ann/would-rather-not")[:3])
    story.end("apart")
