"""The story: at noon a bad version, a quota cut, a machine removed, one cordoned; at 12:05 all as before;
then undone.

With the real daemons and real programs: those that nobody had to touch are the same processes all the while.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cells import RealCell, runs, wait_until
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    Life,
    becomes,
    foreground,
    lives,
    refused_for,
    status_of,
    submitted,
    tasks_of,
    watched_cell,
)
from tests.forked import FAUXMASTER, call

SLEEPER = """\
name: {name}
tasks: {tasks}
run: [sleep, '100000']
env: {{VERSION: {version}}}
resources: {{cpu: 10m, ram: 8MiB}}
priority: production
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    with watched_cell(tmp_path_factory.mktemp("story") / "cell", machines=3) as cell:
        refused_for(cell, 10.0)  # a machine goes for good, and nobody waits a minute for it
        yield cell


def versions(made: RealCell, job: str) -> list[str]:
    """Return the environment of each program of a job that runs, by what the kernel says."""
    found = []
    for life in lives(made, job).values():
        with suppress(OSError):  # it has just ended
            environment = Path(f"/proc/{life.pid}/environ").read_bytes().split(b"\0")
            found += [entry[8:].decode() for entry in environment if entry.startswith(b"VERSION=")]
    return found


def machines(made: RealCell) -> dict[str, str]:
    return {machine["name"]: machine["state"] for machine in made.items("machine", "list")}


def quotas(made: RealCell) -> dict[str, int]:
    return {it["user"]: it["limits"]["cpu_millis"] for it in made.items("quota", "list")}


def on(made: RealCell, machine: str) -> dict[str, Life]:
    names = {name for name, task in tasks_of(made).items() if task.machine == machine}
    return {name: life for name, life in lives(made).items() if name in names}


def guilty_is_found(made: RealCell, file: Path, noon: int) -> None:
    """With nothing but an exported file: which command made `web` bad, and who asked for it."""
    said = made.ok("checkpoint", "export", "noon", file, "--with-journal")
    assert f"with the journal up to {status_of(made).position}," in said
    (found,) = faux("next", "submit", "ann/web", "--at", noon, file=file)["entries"]
    who = next(entry for entry in made.items("history", "web") if entry["position"] == found["position"])
    assert (found["actor"], found["text"]) == (who["actor"], "ann/web submitted: 5 tasks")

    before = faux("diff", noon, found["position"] - 1, file=file)["changes"]["jobs"]
    after = faux("diff", noon, found["position"], file=file)["changes"]["jobs"]
    assert ["env.VERSION: changed" in str(change["lines"]) for change in before] == [False]
    assert ["env.VERSION: changed" in str(change["lines"]) for change in after] == [True]
    (gone,) = faux("next", "MachineRemoved", "--at", noon, file=file)["entries"]
    assert gone["subject"] == "m3"


def faux(verb: str, *words: object, file: Path) -> Any:
    """Ask fauxmaster, which must answer, and return what it says as data."""
    done = call(FAUXMASTER, [verb, file, *words, "--json"])
    assert done.code == 0, done
    return json.loads(done.out)


def test_all_is_as_before_and_then_undone(made: RealCell, tmp_path: Path) -> None:
    made.ok("quota", "set", "ann", "--band", "production", "--cpu", "200m", "--ram", "1GiB")
    for name, tasks in (("web", 3), ("db", 6)):
        submitted(made, SLEEPER.format(name=name, tasks=tasks, version="good"))
    noon = status_of(made).position
    made.ok("checkpoint", "create", "--name", "noon")
    db = lives(made, "ann/db")

    # At noon: m3 goes for good, m1 is cordoned, a quota is cut, and a bad version is deployed.
    lost = on(made, "m3")
    assert lost.keys() < lives(made).keys()
    made.kill("m3")
    wait_until(lambda: machines(made)["m3"] == "down", PATIENCE_SECONDS)
    assert "`borgctl machine invite` lets it in" in made.ok("machine", "remove", "--yes", "m3")
    made.ok("machine", "cordon", "m1", "--reason", "by mistake")
    made.ok("job", "kill", "--yes", "web")
    submitted(made, SLEEPER.format(name="web", tasks=5, version="bad"))
    said = made.ok("quota", "set", "ann", "--band", "production", "--cpu", "50m", "--ram", "1GiB")
    assert "that goes on, and nothing more is admitted" in said
    made.ok("job", "wait", "db", "--settle", 0)
    assert versions(made, "ann/web") == ["bad"] * 5
    untouched = lives(made, "ann/db")
    assert {name: life for name, life in db.items() if name not in lost}.items() <= untouched.items()

    guilty_is_found(made, tmp_path / "noon.checkpoint", noon)

    # At 12:05: what differs, what a rollback would do, and the rollback.
    said = made.ok("diff", noon)
    assert "- m3: up" in said
    assert "~ ann/web: submitted again" in said
    assert "tasks: 3 -> 5; env.VERSION: changed" in said
    assert "~ ann/production: limits: 200m cpu, 1GiB ram -> 50m cpu, 1GiB ram" in said
    plan = made.items("rollback", noon, "--dry-run")
    assert (plan["stopped"], plan["started"], plan["kept"]) == (5, 3, 6)
    assert plan["machines"] == ["m1 takes new tasks again"]
    assert plan["machines_missing"] == ["m3"]
    assert plan["quotas"] == ["ann/production is 200m cpu, 1GiB ram again"]
    assert [(job["name"], job["change"]) for job in plan["jobs"]] == [("ann/web", "changes")]
    before = status_of(made)
    refused = made.borgctl("rollback", "--yes", noon, "--max-affected", 4)
    assert (refused.code, "this would stop 5 of 11 running tasks" in refused.err) == (1, True)
    assert status_of(made).position == before.position

    done = made.ok("rollback", "--yes", noon, "--max-affected", 5)
    assert "on timeline 2: 5 tasks to stop, 3 to start, 6 continue\n" in done
    assert done.endswith(f"to undo it: borgctl rollback {before.position}\n")
    kept = made.items("checkpoint", "show", f"before-rollback-{before.position}")
    assert kept["checkpoint"]["reason"] == "before a rollback"
    becomes(lambda: versions(made, "ann/web"), ["good"] * 3)
    becomes(lambda: status_of(made).to_change, 0)
    made.ok("job", "wait", "web", "--settle", 0)
    assert lives(made, "ann/db") == untouched
    assert machines(made) == {"m1": "up", "m2": "up"}
    assert quotas(made) == {"ann": 200}
    assert status_of(made).timeline == 2

    # Its borglet is started again: what it still ran of before ends, for it runs elsewhere.
    made.ok("up")
    assert machines(made) == {"m1": "up", "m2": "up", "m3": "up"}
    wait_until(lambda: not any(runs(life.pid or 0) for life in lost.values()), PATIENCE_SECONDS)
    assert lives(made, "ann/db") == untouched

    # The rollback is undone.
    undo = done.splitlines()[-1].split()[-1]
    assert int(undo) == before.position
    made.ok("rollback", "--yes", undo, "--now", "--max-affected", 3)
    becomes(lambda: sorted(versions(made, "ann/web")), ["bad"] * 5)
    assert machines(made) == {"m1": "cordoned", "m2": "up", "m3": "up"}
    assert quotas(made) == {"ann": 50}
    assert lives(made, "ann/db") == untouched
    assert status_of(made).timeline == 3
    asked = [entry["asked"] for entry in made.items("history", "web")]
    assert asked.count("rollback") == 2


CRASHING = """\
name: web
tasks: 5
run: [sh, -c, 'sleep 0.5; exit 3']
resources: {cpu: 10m, ram: 8MiB}
"""


def test_a_rollback_to_what_crashes_costs_one_task_and_is_undone(tmp_path: Path) -> None:
    with watched_cell(tmp_path / "cell", machines=2) as made:
        made.borgctl("job", "submit", "-", "--user", "ann", "--detach", stdin=CRASHING)
        bad = status_of(made).position
        made.ok("job", "kill", "--yes", "ann/web")
        submitted(made, SLEEPER.format(name="web", tasks=5, version="good"))
        good, before = status_of(made).position, lives(made, "ann/web")
        assert len(before) == 5

        made.ok("rollback", "--yes", bad, "--max-affected", 5)
        wait_until(lambda: status_of(made).rollbacks_paused, PATIENCE_SECONDS)
        assert status_of(made).to_change == 4
        (said,) = status_of(made).rollbacks_paused
        assert said.startswith("ann/web: task 0 was restarted ")
        assert said.endswith(" (exit code 3)")
        assert f"paused      {said}" in made.ok("status")
        assert "That is paused: task 0 was restarted" in made.ok("why", "ann/web")
        assert "the rollback of ann/web is paused: task 0 was" in str(made.items("history", "ann/web"))
        # It crashes again and again, and the others are left alone.
        crashes = tasks_of(made)["ann/web/0"].restarts
        wait_until(lambda: tasks_of(made)["ann/web/0"].restarts > crashes + 1, PATIENCE_SECONDS)
        untouched = {name: life for name, life in before.items() if name != "ann/web/0"}
        assert untouched.items() <= lives(made, "ann/web").items()

        made.ok("rollback", "--yes", good)
        becomes(lambda: status_of(made).to_change, 0)
        made.ok("job", "wait", "ann/web")
        assert versions(made, "ann/web") == ["good"] * 5
        assert untouched.items() <= lives(made, "ann/web").items()
        assert status_of(made).rollbacks_paused == ()


def test_a_rollback_outlives_its_master(made: RealCell) -> None:
    made.ok("machine", "uncordon", "m1")
    made.borgctl(
        "quota", "remove", "--yes", "ann", "--band", "production"
    )  # what the story left, if it was told here
    submitted(made, SLEEPER.format(name="many", tasks=20, version="good"))
    good = status_of(made).position
    made.ok("job", "kill", "--yes", "many", "--max-affected", 20)
    submitted(made, SLEEPER.format(name="many", tasks=20, version="bad"))
    others = {name: life for name, life in lives(made).items() if not name.startswith("ann/many")}
    for name in ("borgmaster", "m1", "m2", "m3"):
        made.kill(name)
    # One that never heard them takes all for down in one moment, so that none loses its tasks to another.
    with foreground("borgish.master.main", made.folder / "cell.toml") as master:
        wait_until(lambda: "serving local" in master.said(), PATIENCE_SECONDS)
        wait_until(lambda: set(machines(made).values()) == {"down"}, PATIENCE_SECONDS)
        made.ok("rollback", "--yes", good, "--only", "ann/many", "--max-affected", 20, "--now")
        assert status_of(made).to_change == 20  # with none of them to be reached, nothing is decided yet
        refused = made.borgctl("rollback", "--yes", good)
        assert "a rollback to that is under way: 20 tasks still to be stopped" in refused.err
        master.process.kill()
        master.ended()
    made.ok("up")
    becomes(lambda: versions(made, "ann/many"), ["good"] * 20)
    becomes(lambda: status_of(made).to_change, 0)
    made.ok("job", "wait", "many", "--settle", 0)
    after = {name: life for name, life in lives(made).items() if not name.startswith("ann/many")}
    assert after == others
