"""Checkpoints of a running cell, looked after by people: made, named, verified, taken out and let go."""

import os
import sqlite3
import stat
from pathlib import Path

from tests.cells import RealCell
from tests.e2e.watched import lives, status_of, submitted
from tests.forked import FAUXMASTER, call

SLEEPERS = "name: sleepers\ntasks: 3\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"
MORE = "name: more\nuser: ann\nrun: ['true']\nresources: {cpu: 10m, ram: 8MiB}\n"


def faux(*arguments: object) -> str:
    """Ask fauxmaster, which must answer."""
    done = call(FAUXMASTER, arguments)
    assert done.code == 0, done
    return done.out


def damage(made: RealCell, position: int) -> None:
    """Alter what is stored, behind the master's back."""
    with sqlite3.connect(made.folder / "cell.db", timeout=10) as connection:
        connection.execute("UPDATE checkpoints SET body = substr(body, 2) WHERE position = ?", (position,))
    connection.close()


def test_a_checkpoint_is_named_verified_exported_and_deleted(tidied: RealCell, tmp_path: Path) -> None:
    submitted(tidied, SLEEPERS)
    before = lives(tidied, "ann/sleepers")
    position = status_of(tidied).position
    assert f"checkpoint noon at position {position}" in tidied.ok("checkpoint", "create", "--name", "noon")
    shown = tidied.items("checkpoint", "show", "noon")
    assert (shown["checkpoint"]["position"], shown["contents"]["running"]) == (position, 3)

    file = tmp_path / "noon.checkpoint"
    tidied.ok("checkpoint", "export", "noon", file)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert tidied.borgctl("checkpoint", "export", "noon", file).code == 1
    tidied.ok("job", "kill", "--yes", "sleepers")  # the file is of the moment before
    assert "job ann/sleepers: 0 pending, 3 running, 0 dead" in faux("show", file)
    assert "job ann/sleepers: 0 pending, 0 running, 3 dead" in faux("show", tidied.folder / "cell.db")
    (tmp_path / "more.yaml").write_text(MORE)
    assert "more tasks of more fit" in faux("fits", file, tmp_path / "more.yaml")
    assert len(before) == 3

    later = tidied.items("checkpoint", "list")[0]["position"]
    tidied.ok("checkpoint", "create")
    assert tidied.borgctl("checkpoint", "create", "--name", "noon").code == 1
    verdicts = {item["position"]: item["good"] for item in tidied.items("checkpoint", "verify")}
    assert verdicts[later]
    assert all(verdicts.values())
    tidied.ok("checkpoint", "delete", "--yes", "noon")
    assert tidied.borgctl("checkpoint", "show", "noon").code == 1

    said = tidied.ok("checkpoint", "import", file)
    assert said.startswith(f"imported the checkpoint noon at position {position}")
    assert "is kept already" in tidied.borgctl("checkpoint", "import", file).err
    then = {job["name"]: job["running"] for job in tidied.items("job", "list", "--at", "noon")}
    assert then["ann/sleepers"] == 3
    assert tidied.items("checkpoint", "verify", "noon")[0]["good"]


def test_a_damaged_checkpoint_is_found_and_the_last_good_one_stays(tidied: RealCell, tmp_path: Path) -> None:
    submitted(tidied, SLEEPERS)
    tidied.ok("checkpoint", "create")
    good, *others = [item["position"] for item in tidied.items("checkpoint", "list")]
    for position in others:
        tidied.ok("checkpoint", "delete", "--yes", position)
    tidied.ok("job", "kill", "--yes", "sleepers")
    tidied.ok("checkpoint", "create")
    bad = tidied.items("checkpoint", "list")[0]["position"]
    assert bad > good
    damage(tidied, bad)

    listed = {item["position"]: item["problem"] for item in tidied.items("checkpoint", "list")}
    assert (bool(listed[bad]), listed[good]) == (True, "")
    assert tidied.items("status", "--at", bad)["as_of"]["position"] == bad  # from the one before
    said = tidied.borgctl("checkpoint", "verify")
    assert said.code == 1
    assert [line.split()[:2] for line in said.out.splitlines()[1:]] == [[str(bad), "no"], [str(good), "yes"]]
    assert tidied.borgctl("checkpoint", "export", bad, tmp_path / "bad").code == 1
    said = tidied.borgctl("checkpoint", "delete", "--yes", good)
    assert said.code == 1
    assert "last good one" in said.err
    tidied.ok("checkpoint", "delete", "--yes", bad)
    assert tidied.ok("checkpoint", "verify", "all", "-o", "name") == f"{good}\n"
