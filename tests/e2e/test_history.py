"""``borgctl history`` on a running cell: a job's life, also after the master was killed."""

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, status_of, submitted, task_of

PAIR = "name: pair\ntasks: 2\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"


def told(made: RealCell, *arguments: str) -> list[tuple[str, str, str]]:
    """Return who, what was asked and what happened, of each line."""
    return [
        (entry["actor"], entry["asked"], event["text"])
        for entry in made.items("history", *arguments)
        for event in entry.get("events", [])
    ]


def test_a_life_is_told_from_the_journal(own: RealCell) -> None:
    submitted(own, PAIR)
    own.ok("job", "scale", "pair", 3)
    own.ok("job", "wait", "pair", "--settle", 0)
    own.ok("task", "kill", "pair/1")
    admin = next(entry["actor"] for entry in own.items("history", "pair"))
    wanted = [
        (admin, "submit", f"{admin} submitted ann/pair: 2 tasks"),
        ("scheduler", "place", "ann/pair tasks 0-1 placed on m1"),
        (admin, "scale", f"{admin} changed ann/pair: 3 tasks"),
        ("scheduler", "place", "ann/pair/2 placed on m1"),
        (admin, "kill", f"ann/pair/1 killed by {admin}"),
    ]
    assert told(own, "pair") == wanted
    assert [what for _, _, what in told(own, "pair/1")] == [
        wanted[0][2],
        "ann/pair/1 placed on m1",
        wanted[2][2],
        wanted[4][2],
    ]
    assert told(own, "ann/pair", "-n", "2") == wanted[-2:]
    own.kill("borgmaster")
    own.ok("up")
    wait_until(lambda: status_of(own).epoch == 2, PATIENCE_SECONDS)
    assert told(own, "pair")[: len(wanted)] == wanted
    assert task_of(own, "ann/pair/0").attempt
