"""What asks before something is lost, what it names, and that nothing is done without an answer."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from borgish.cli import borgctl, local_cell
from borgish.dashboard.actions import actions
from borgish.dashboard.place import View
from borgish.wire.api import Accepted, AsOf, CheckpointView
from borgish.wire.api_apps import AppDetail
from borgish.wire.api_crons import CronView
from borgish.wire.api_past import CheckpointList, RollbackPlan
from tests.unit.cli.commands import leaves
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import APP, NOW, FakeMaster, job, machine

ASKING = {
    "app kill shop": "ends ann/shop: 1 job with 0 running and 1 pending tasks",
    "app remove shop": "forgets the application shop, with all of its versions",
    "budget delete web": "deletes the budget web",
    "checkpoint delete noon": "deletes the checkpoint noon at position 40",
    "cron remove nightly": "removes the cron ann/nightly",
    "group remove team": "forgets the group team",
    "job kill web": "ends the job ann/web: 3 tasks, 3 running and 0 pending",
    "machine drain m1 --force --detach": "stops every task on m1 at once, whatever the budgets say",
    "machine remove m1": "takes machine m1 out of the cell",
    "machine revoke m1": "has machine m1 out of the cell at once",
    "quota remove ann --band batch": "removes the quota of ann in the band batch",
    "rollback 42": "takes the whole cell back to position 42",
    "secret remove db": "forgets the secret db of ann",
    "user remove ann": "forgets the user ann, with all tokens and grants",
}
EVERYDAY = (
    *("task kill web/0", "job scale web 1", "job restart web", "job undo web", "machine cordon m1"),
    *("machine drain m1 --detach", "cron pause nightly", "token revoke abc", "freeze", "unfreeze"),
)
ELSEWHERE = ("down", "apply", "job edit", "job init")
"""Tested by themselves: they ask with a purge only, where jobs end, what is to be submitted, about a file."""
CRON = CronView("ann/nightly", "ann", "0 3 * * *", "UTC", None, None, None, 0, 0, 3)
Out = pytest.CaptureFixture[str]


@pytest.fixture
def cell(master: FakeMaster) -> FakeMaster:
    """A master that does whatever is asked of it."""
    master.has(job())
    done = Accepted(50, "m1", "done")
    kept = CheckpointView(40, NOW, "asked", 10, "ab", "noon")
    master.answers |= {
        "GET /v1/apps": {"items": (APP,)},
        "GET /v1/apps/ann/shop": AppDetail(APP, (), (), ()),
        "GET /v1/checkpoints": CheckpointList((kept,)),
        "GET /v1/crons": {"items": (CRON,)},
        "GET /v1/machines": {"items": (machine(),)},
        "POST /v1/rollback/plan": RollbackPlan(AsOf(42, NOW), 5, 1, 2, 0),
        "POST /v1/checkpoints/40/delete": kept,
    }
    posts = (
        *("apps/ann/shop/kill", "apps/ann/shop/remove", "budgets/web/delete", "crons/ann/nightly/remove"),
        *("groups/team/remove", "jobs/ann/web/kill", "drains", "machines/m1/remove", "machines/m1/revoke"),
        *("quotas/ann/batch/delete", "rollback", "secrets/ann/db/remove", "users/ann/remove", "freeze"),
        *("jobs/ann/web/scale", "jobs/ann/web/restart", "jobs/ann/web/undo", "machines/m1/cordon"),
        *("crons/ann/nightly/pause", "tokens/abc/revoke", "unfreeze"),
    )
    return_it: Callable[[object], object] = lambda _: done  # noqa: E731
    master.answers |= {f"POST /v1/{path}": return_it for path in posts}
    return master


def changes(master: FakeMaster) -> list[str]:
    return [call for call in master.calls if call.startswith("POST") and not call.endswith("/plan")]


@pytest.mark.parametrize("words", ASKING)
def test_without_a_terminal_and_without_yes_nothing_is_done(
    words: str, cell: FakeMaster, run: Run, capsys: Out
) -> None:
    assert run(*words.split()) == 2
    said = capsys.readouterr()
    assert f"nothing was done: this {ASKING[words]}" in said.err
    assert "--yes" in said.err
    assert said.out == ""
    assert changes(cell) == []


@pytest.mark.parametrize("words", ASKING)
def test_with_yes_it_is_done_unasked(words: str, cell: FakeMaster, run: Run) -> None:
    assert run(*words.split(), "--yes") == 0
    assert len(changes(cell)) == 1


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A person at a terminal, who types what this is called with."""
    monkeypatch.setattr("borgish.cli.confirm.is_terminal", lambda _: True)
    return lambda text: monkeypatch.setattr("sys.stdin", StringIO(f"{text}\n"))


@pytest.mark.parametrize("words", ASKING)
@pytest.mark.parametrize(("typed", "done"), [("y", 1), ("n", 0), ("", 0)])
def test_a_person_is_asked(
    words: str,
    typed: str,
    done: int,
    cell: FakeMaster,
    run: Run,
    capsys: Out,
    answer: Callable[[str], None],
) -> None:
    answer(typed)
    assert run(*words.split()) == (0 if done else 1)
    said = capsys.readouterr().err
    assert f"This {ASKING[words]}" in said
    assert ("nothing was done" in said) is not bool(done)
    assert len(changes(cell)) == done


@pytest.mark.parametrize("words", EVERYDAY)
def test_everyday_commands_ask_nothing(words: str, cell: FakeMaster, run: Run) -> None:
    assert run(*words.split()) == 0
    assert len(changes(cell)) == 1


def test_every_command_that_asks_is_in_the_table() -> None:
    """And so is whoever comes to ask, for the table is what is tested."""
    found = {
        " ".join(path) for path, command in leaves() if any(each.name == "yes" for each in command.params)
    }
    named = {path for path in found if any(words.startswith(path) for words in ASKING)}
    assert found == named | set(ELSEWHERE)


@pytest.mark.parametrize(
    ("view", "subject"),
    [(View.JOB, "ann/web"), (View.TASK, "ann/web/0"), (View.MACHINE, "m1"), (View.TIME, "42")],
)
def test_the_dashboard_asks_itself_and_says_yes(view: View, subject: str) -> None:
    for action in actions(view, subject, "admin"):
        words = " ".join(word for word in action.command if word != "--yes")
        asks = any(words.startswith(" ".join(each.split()[:2])) for each in ASKING if "--force" not in each)
        asks = (asks or action.command[0] == "rollback") and "--dry-run" not in action.command
        assert ("--yes" in action.command) is asks, words


def test_a_purge_names_the_cell_and_wants_its_name_typed(
    tmp_path: Path, capsys: Out, answer: Callable[[str], None]
) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    down = ["--dir", str(folder), "down", "--purge"]
    answer("y")
    assert borgctl.run(down) == 1
    said = capsys.readouterr().err
    assert "This removes the cell local with its jobs, its database, its checkpoints and all output" in said
    assert str(folder) in said
    assert (folder / "cell.toml").exists()
    answer("local")
    assert borgctl.run(down) == 0
    assert not folder.exists()


def test_a_purge_without_a_terminal_does_nothing(tmp_path: Path, capsys: Out) -> None:
    folder = tmp_path / "cell"
    local_cell.make(folder, 1)
    assert borgctl.run(["--dir", str(folder), "down", "--purge"]) == 2
    assert "nothing was done: this removes the cell local" in capsys.readouterr().err
    assert (folder / "cell.toml").exists()
