"""The past of a real cell: read as it was, by position, by time and by a checkpoint's name."""

from tests.cells import RealCell

JOB = """\
name: past
user: ann
tasks: 2
run: [sleep, "1000"]
resources: {cpu: 10m, ram: 16MiB}
"""


def test_a_cell_is_read_as_it_was(tidied: RealCell) -> None:
    empty = tidied.items("status")["position"]
    tidied.ok("job", "submit", "--settle", 0, "-", stdin=JOB)
    tidied.ok("checkpoint", "create", "--name", "two-tasks")
    two = tidied.items("checkpoint", "show", "two-tasks")["checkpoint"]["position"]
    at_two = tidied.items("status")["now"]
    tidied.ok("job", "scale", "ann/past", 5)
    tidied.ok("job", "wait", "ann/past", "--settle", 0)

    assert "ann/past" not in {job["name"] for job in tidied.items("job", "list", "--at", empty)}
    for at in (two, at_two, "two-tasks"):
        job = {job["name"]: job for job in tidied.items("job", "list", "--at", at)}["ann/past"]
        assert (job["tasks"], job["running"], job["up"]) == (2, 2, None)
    assert len(tidied.items("task", "list", "past")) == 5
    then = tidied.items("task", "list", "past", "--at", "two-tasks")
    assert [(task["state"], task["phase"]) for task in then] == [("running", None)] * 2
    assert [task["machine"] for task in then] == [
        task["machine"] for task in tidied.items("task", "list", "past")[:2]
    ]
    assert tidied.items("status", "--at", "two-tasks")["as_of"]["position"] == two
    assert tidied.ok("why", "past/0", "--at", "two-tasks").startswith(f"As of position {two} (")
    refused = tidied.borgctl("job", "show", "past", "--at", empty)
    assert refused.code == 1
    assert "there is no job 'past'" in refused.err


def test_two_moments_are_compared(tidied: RealCell) -> None:
    tidied.ok("job", "submit", "--settle", 0, "-", stdin=JOB.replace("past", "apart"))
    before = tidied.items("status")["position"]
    tidied.ok("job", "scale", "ann/apart", 3)
    tidied.ok("job", "wait", "ann/apart", "--settle", 0)
    tidied.ok("task", "kill", "ann/apart/0")

    found = tidied.items("diff", before)

    assert (found["old"]["position"], found["changes"]["machines"]) == (before, [])
    assert found["changes"]["jobs"] == [
        {"kind": "changed", "name": "ann/apart", "lines": ["tasks: 2 -> 3"]},
    ]
    ended, new = found["changes"]["tasks"]
    assert (ended["indexes"], ended["lines"][0]) == ("0", "state: running -> dead (killed)")
    assert (new["kind"], new["indexes"], new["lines"]) == ("added", "2", ["running"])
    assert "~ ann/apart: tasks: 2 -> 3" in tidied.ok("diff", before)
    assert "nothing differs" in tidied.ok("diff", "now", "now")
