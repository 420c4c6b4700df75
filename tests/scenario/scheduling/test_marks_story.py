"""Taints, machines kept for some, attributes that change, and images, from the job file to the machine."""

from borgish.cell.commands import (
    Observe,
    TaintMachine,
    UntaintMachine,
)
from borgish.master.step import CommandRequest
from borgish.vocabulary import Runtime, TaintEffect
from tests.scenario.scheduling.story import Story

PLAIN = """
    name: plain
    tasks: 2
    run: [sleep, "1000"]
    resources: {cpu: 100m, ram: 64MiB}
    """


def test_machines_kept_for_some() -> None:
    story = Story()
    story.machine("m1")
    story.machine("m2", pool="ml")
    story.do(TaintMachine("m2", "dedicated", "ml"), words="m2 dedicated=ml")
    story.submit(PLAIN)
    assert story.where("ann/plain") == ["m1", "m1"]
    story.submit_file("dedicated")
    assert story.where("ann/dedicated") == ["m2"]
    story.end("dedicated")


def test_taints_that_evict_and_how_long_one_may_stay() -> None:
    story = Story()
    story.machines("m1", "m2", pool="ml")
    story.do(TaintMachine("m2", "dedicated", "ml"), words="m2 dedicated=ml")
    story.submit(PLAIN)
    story.submit_file("dedicated")
    on = story.where("ann/dedicated")[0]
    story.do(TaintMachine("m1", "repair", effect=TaintEffect.EVICT), words="m1 repair, evicting")
    story.do(TaintMachine("m2", "repair", effect=TaintEffect.EVICT), words="m2 repair, evicting")
    story.wait(2.0)
    story.show()
    assert story.where("ann/plain") == ["", ""]
    assert story.where("ann/dedicated") == [on]
    story.tell("an hour later")
    for _ in range(3602):
        story.wait(1.0)
    story.show()
    assert story.where("ann/dedicated") == [""]
    story.do(UntaintMachine("m1", "repair"), words="m1 repair")
    assert story.where("ann/plain") == ["m1", "m1"]
    story.end("taints")


def test_taints_that_are_only_avoided() -> None:
    story = Story()
    story.machines("m1", "m2")
    story.do(TaintMachine("m1", "old", effect=TaintEffect.AVOID), words="m1 old, avoided")
    story.submit(PLAIN)
    assert story.where("ann/plain") == ["m2", "m2"]
    story.submit(
        """
        name: large
        run: [sleep, "1000"]
        resources: {cpu: 4, ram: 1GiB}
        """
    )
    assert story.where("ann/large") == ["m1"]
    story.end("avoided")


def test_attributes_that_change_under_a_task() -> None:
    story = Story()
    story.machine("m1", pool="ml")
    story.machine("m2", pool="ml")
    story.submit_file("dedicated")
    on = story.where("ann/dedicated")[0]
    story.tell(f"{on} comes back with pool=web")
    story.step(CommandRequest(2, Observe(on, "boot", on, (), attributes={"pool": "web"}), on))
    story.wait(2.0)
    story.show()
    assert story.where("ann/dedicated") == [{"m1": "m2", "m2": "m1"}[on]]
    story.end("recheck")


IMAGE = """
    name: {name}
    image: app:1
    resources: {{cpu: 100m, ram: 64MiB}}
    """


def test_images_and_their_architecture() -> None:
    story = Story()
    for name, arch in (("m1", "amd64"), ("m2", "amd64"), ("m3", "arm64"), ("m4", "arm64")):
        story.machine(name, arch=arch, runtimes=(Runtime.PROCESS, Runtime.DOCKER))
    story.machine("m5", arch="amd64")
    story.submit(IMAGE.format(name="first"))
    story.images("m2", app="amd64")
    story.submit(IMAGE.format(name="second"))
    assert story.where("ann/second") == ["m2"]  # where the image is
    story.submit(IMAGE.format(name="many").replace("image", "tasks: 4\n    image", 1))
    assert set(story.where("ann/many")) == {"m1", "m2"}  # of its architecture, with the runtime
    story.end("images")
