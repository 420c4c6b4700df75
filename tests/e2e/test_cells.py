"""Two real cells that somebody is logged in to: what is listed of both, and where jobs go, or do not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from borgish.vocabulary import State
from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, asking, becomes, tasks_of, watched_cell
from tests.forked import Ended
from tests.typed import Shell


class Both(NamedTuple):
    """The cells, and a shell in which no cell is the nearest."""

    east: RealCell
    west: RealCell
    shell: Shell

    def borgctl(self, words: str, stdin: str = "", code: int = 0) -> Ended:
        return self.shell.run(f"borgctl {words}", stdin, code)

    def where(self) -> dict[str, list[str]]:
        """Return in which cells each job runs."""
        said = self.borgctl("task list --state running --cells all -o json").out
        found: dict[str, list[str]] = {}
        for item in json.loads(said):
            found.setdefault(item["job"].removeprefix("ann/"), []).append(item["cell"])
        return found


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with watched_cell(tmp_path / "east") as east, watched_cell(tmp_path / "west") as west:
        shell = Shell(tmp_path, "ann")
        shell.run("export XDG_CONFIG_HOME=~/.config")
        for name, made in (("east", east), ("west", west)):
            with asking(made) as client:
                shell.run(f"borgctl login {client.url} --name {name}", stdin=client.token)
        yield Both(east, west, shell)


def job(name: str, share: float, made: RealCell, more: str = "") -> str:
    """Return a job of one task that asks for a share of the cpu of a cell."""
    with asking(made) as client:
        cpu_millis = client.get("/v1/status", None, dict)["capacity"]["cpu_millis"]
    needs = f"resources: {{cpu: {round(share * cpu_millis)}m, ram: 8MiB}}\n"
    return f"name: {name}\npriority: batch\nrun: [sleep, '100000']\n{needs}{more}"


def test_jobs_go_where_there_is_room(both: Both) -> None:
    submit = "job submit - --settle 0 --cells"
    both.borgctl(f"{submit} east", job("first", 0.6, both.east))
    # Only west has room for the next one, and none has for the third.
    assert "ann/second goes to west" in both.borgctl(f"{submit} all", job("second", 0.6, both.east)).out
    becomes(both.where, {"first": ["east"], "second": ["west"]})
    third = job("third", 0.6, both.east)
    said = both.borgctl(f"{submit} all", third, 3).err.splitlines()
    assert said[0] == "error: no cell has room for all of ann/third; nothing was submitted"
    assert [line.split(":")[0] for line in said[1:]] == ["  east", "  west"]
    assert all("0 of 1 task would be placed" in line and "too little cpu free" in line for line in said[1:])
    assert [*tasks_of(both.east), *tasks_of(both.west)] == ["ann/first/0", "ann/second/0"]
    # A gang has a place as a whole or not at all.
    gang = job("gang", 0.3, both.east, "tasks: 2\ngang: true\n")
    assert "  east: 0 of 2 tasks would be placed" in both.borgctl(f"{submit} all", gang, 3).err
    # What preempts somebody goes where nobody has to leave, where there is such a cell.
    both.borgctl("cell use east")
    both.borgctl("job kill first --yes")
    wait_until(lambda: tasks_of(both.east)["ann/first/0"].state is State.DEAD, PATIENCE_SECONDS)
    prod = third.replace("batch", "production")
    said_of_prod = both.borgctl(f"{submit} all", prod).out
    assert "ann/third goes to east" in said_of_prod
    assert "west: 1 other task preempted" in said_of_prod
    # What is there stays there, wherever there is more room.
    changed = job("second", 0.6, both.east, "env: {RELEASE: '2'}\nupdate: {settle: 1s}\n")
    assert "ann/second goes to west, where it is already" in both.borgctl(f"{submit} all", changed).out
    becomes(both.where, {"second": ["west"], "third": ["east"]})


def test_an_alloc_and_its_tasks_stand_in_one_cell_which_may_be_away(both: Both) -> None:
    submit = "job submit - --settle 0 --cells all"
    both.west.ok("job", "submit", "-", "--user", "ann", "--settle", 0, stdin=job("full", 0.5, both.west))
    allocs = job("room", 0.3, both.east).replace("run: [sleep, '100000']\n", "kind: alloc_set\n")
    assert "ann/room goes to east" in both.borgctl(submit, allocs).out
    inside = job("guest", 0.1, both.east, "in: room\n")
    assert "ann/guest goes to east, which has room for all of it: 30% of the cpu" in (
        both.borgctl(submit, inside).out
    )
    both.east.kill("borgmaster")
    said = both.borgctl("job list --cells all -o name", code=4)
    assert said.out == "west ann/full\n"
    assert said.err.startswith("error: east: http://127.0.0.1:")
    status = both.borgctl("cell status -o json", code=4).out
    assert [(each["name"], each["state"]) for each in json.loads(status)] == [
        ("east", "unreachable"),
        ("west", "ok"),
    ]
    said = both.borgctl("job submit - --cells all", inside, 4)
    assert "a cell that cannot be asked might have the job\nhint: Name the others: --cells west" in said.err
