"""A database restored from a backup, older or without its secret: its master commands nothing, says so, and
goes on only when told to."""

import re
import shutil
from pathlib import Path

from tests.cells import RealCell, runs, wait_until
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    Foreground,
    becomes,
    foreground,
    lives,
    status_of,
    submitted,
    tasks_of,
    watched_cell,
)

JOB = "name: {name}\ntasks: {tasks}\nrun: [sleep, '100000']\nresources: {{cpu: 10m, ram: 8MiB}}\n"


def keep(cell: Path, backup: Path) -> None:
    """Copy the database of a master that does not run."""
    backup.mkdir()
    for file in cell.glob("cell.db*"):
        shutil.copy(file, backup / file.name)


def restore(cell: Path, backup: Path) -> None:
    """Put a copy in the place of the database."""
    for file in cell.glob("cell.db*"):
        file.unlink()
    for file in backup.iterdir():
        shutil.copy(file, cell / file.name)


def serves(master: Foreground) -> bool:
    assert master.process.poll() is None, master.said()
    return "serving local on" in master.said()


def orphans(made: RealCell) -> set[str]:
    return {name for machine in made.items("machine", "list") for name in machine["orphans"]}


def test_an_older_database_is_refused_and_taken_over_when_told(tmp_path: Path) -> None:
    with watched_cell(tmp_path / "cell", machines=2) as made:
        submitted(made, JOB.format(name="steady", tasks=3))
        steady = lives(made)
        made.kill("borgmaster")
        keep(made.folder, tmp_path / "backup")
        made.ok("up")
        made.ok("job", "scale", "steady", 5)
        submitted(made, JOB.format(name="lost", tasks=1))
        made.ok("job", "wait", "steady", "--settle", 0)
        every = lives(made)
        placed = {f"{name}@{life.attempt}" for name, life in every.items() if name not in steady}
        made.kill("borgmaster")
        restore(made.folder, tmp_path / "backup")

        said = made.borgctl("up")
        assert said.code == 1
        assert "borgmaster ended with exit code 73" in said.err
        # A busy one may answer too late: half of them are enough.
        assert re.search("older than what (1 of 1|2 of 2) machines that answered have seen", said.err)
        assert "--take-over-from-older-store" in said.err
        assert all(runs(life.pid or 0) for life in every.values())

        flag = "--take-over-from-older-store"
        with foreground("borgish.master.main", made.folder / "cell.toml", flag) as master:
            wait_until(lambda: serves(master), PATIENCE_SECONDS)
            assert "taken over as asked for" in master.said()
            becomes(lambda: lives(made), steady)
            becomes(lambda: orphans(made), placed)
            made.ok("job", "scale", "steady", 5)
            made.ok("job", "wait", "steady", "--settle", 0)
            fresh = [task.attempt for name, task in tasks_of(made).items() if name not in steady]
            assert min(fresh) > 1_000_000
            assert (status_of(made).timeline, orphans(made)) == (2, placed)
            assert all(runs(life.pid or 0) for life in every.values())
            master.end()
        made.ok("up")  # from now on as ever
        wait_until(lambda: steady.items() <= lives(made).items(), PATIENCE_SECONDS)
        assert status_of(made).timeline == 2
        assert orphans(made) == placed


def test_a_database_without_its_secret_is_refused_until_it_is_back(tmp_path: Path) -> None:
    with watched_cell(tmp_path / "cell") as made:
        submitted(made, JOB.format(name="steady", tasks=1))
        steady = lives(made)
        made.kill("borgmaster")
        secret, config = made.folder / "secret", made.folder / "cell.toml"
        secret.rename(tmp_path / "secret")
        with foreground("borgish.master.main", config) as master:
            assert master.ended() == 74
            assert f"{made.folder} has no secret, and the cell in this database has one" in master.said()
            assert "--take-over" in master.said()
        assert not secret.exists()
        secret.write_text("f" * 64 + "\n")
        secret.chmod(0o600)
        with foreground("borgish.master.main", config) as master:
            assert master.ended() == 74
            assert f"{secret} is not the one of the cell in this database" in master.said()
        with foreground("borgish.master.main", config, "--take-over") as master:
            wait_until(lambda: serves(master), PATIENCE_SECONDS)
            assert "taken over as asked for" in master.said()
        (tmp_path / "secret").rename(secret)
        assert all(runs(life.pid or 0) for life in steady.values())
        made.ok("up")
        becomes(lambda: lives(made), steady)
