"""Commands that no story of the other tests needs, each on a real cell: each does what it says."""

import json

from tests.cells import RealCell
from tests.e2e.watched import submitted, tasks_of
from tests.forked import BORGCTL, call

SLEEPS = "run: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"
SETTLES_SOON = "update: {settle: 1s}\n"
APP = f"kind: app\nname: one\n---\nname: of-one\n{SLEEPS}"
CRON = "kind: cron\nname: yearly\nschedule: '0 0 1 1 *'\nrun: ['true']\n"


def test_taints(tidied: RealCell) -> None:
    tidied.ok("machine", "taint", "m1", "repair", "--effect", "refuse")
    submitted(tidied, "name: tainted\n" + SLEEPS)
    assert {each.machine for each in tasks_of(tidied, "ann/tainted").values()} == {"m2"}
    assert "repair" in tidied.ok("machine", "show", "m1")
    tidied.ok("machine", "untaint", "m1", "repair")
    assert "repair" not in tidied.ok("machine", "show", "m1")


def test_an_earlier_version_comes_back(tidied: RealCell) -> None:
    job = "name: undone\n" + SLEEPS + SETTLES_SOON
    submitted(tidied, job)
    submitted(tidied, job + "env: {LEVEL: high}\n")
    assert "is version 1 again" in tidied.ok("job", "undo", "undone")
    tidied.ok("job", "wait", "undone")
    assert "LEVEL" not in tidied.ok("job", "show", "undone", "-o", "file")


def test_a_first_job_file(tidied: RealCell) -> None:
    made = tidied.folder.parent / "first.yaml"
    tidied.ok("job", "init", made, "--name", "first", "--yes")
    tidied.ok("job", "check", made)


def test_what_an_application_would_change(tidied: RealCell) -> None:
    file = tidied.folder.parent / "one.yaml"
    file.write_text(APP)
    tidied.ok("apply", file, "--user", "ann")
    file.write_text(APP + "env: {LEVEL: high}\n")
    tidied.ok("apply", file, "--user", "ann", "--detach")
    assert "env.LEVEL: added" in tidied.ok("app", "diff", "one")
    tidied.ok("app", "kill", "--yes", "one")
    tidied.ok("app", "remove", "--yes", "one")


def test_a_cron_goes_on(tidied: RealCell) -> None:
    tidied.ok("job", "submit", "-", "--user", "ann", stdin=CRON)
    tidied.ok("cron", "pause", "yearly")
    assert "ann/yearly" in {each["name"] for each in tidied.items("cron", "list", "--state", "paused")}
    tidied.ok("cron", "resume", "yearly")
    assert "ann/yearly" not in {each["name"] for each in tidied.items("cron", "list", "--state", "paused")}
    tidied.ok("cron", "remove", "--yes", "yearly")


def test_who_is_there(tidied: RealCell) -> None:
    tidied.ok("user", "add", "kim")
    tidied.ok("group", "add", "night", "--member", "kim")
    assert "night" in {each["name"] for each in tidied.items("group", "list")}
    tidied.ok("group", "remove", "--yes", "night")
    tidied.ok("user", "remove", "--yes", "kim")
    assert "night" not in {each["name"] for each in tidied.items("group", "list")}
    assert "kim" not in tidied.ok("user", "list")
    tidied.ok("cell", "list")


def test_a_secret_is_there_and_goes(tidied: RealCell) -> None:
    tidied.ok("secret", "set", "word", "--user", "ann", stdin="hush")
    shown = tidied.ok("secret", "list")
    assert "word" in shown
    assert "hush" not in shown
    tidied.ok("secret", "remove", "--yes", "word", "--user", "ann")
    assert "word" not in tidied.ok("secret", "list")


def test_a_budget_is_there_and_goes(tidied: RealCell) -> None:
    tidied.ok("budget", "set", "shop", "--where", "app == shop", "--max-unavailable", "1")
    assert "shop" in {each["name"] for each in tidied.items("budget", "list")}
    assert "app == shop" in tidied.ok("budget", "show", "shop")
    tidied.ok("budget", "delete", "--yes", "shop")
    assert "shop" not in {each["name"] for each in tidied.items("budget", "list")}


def test_there_is_nothing_to_attach_to(tidied: RealCell) -> None:
    said = tidied.borgctl("task", "attach", "sleeper/0")
    assert said.code != 0
    assert "task logs -f" in said.err


def test_a_job_is_edited(tidied: RealCell) -> None:
    submitted(tidied, "name: edited\n" + SLEEPS + "priority: batch\n")
    words = ["--dir", tidied.folder, "job", "edit", "edited", "--yes"]
    said = call(BORGCTL, words, environment={"EDITOR": "sed -i s/batch/production/"})
    assert said.code == 0, said
    assert "production" in tidied.ok("job", "show", "edited")


def test_an_update_is_paused_and_goes_on(tidied: RealCell) -> None:
    job = "name: halted\n" + SLEEPS + "tasks: 3\nupdate: {settle: 1h}\n"
    submitted(tidied, job)
    tidied.ok("job", "submit", "--detach", "-", "--user", "ann", stdin=job + "env: {LEVEL: high}\n")
    tidied.ok("job", "update", "pause", "halted")
    assert "paused" in tidied.ok("job", "update", "status", "halted")
    tidied.ok("job", "update", "resume", "halted")
    assert "paused" not in tidied.ok("job", "update", "status", "halted")


def test_a_quota_is_shown(tidied: RealCell) -> None:
    tidied.ok("quota", "set", "kim", "--band", "production", "--cpu", "2", "--ram", "1GiB")
    assert "1GiB" in tidied.ok("quota", "show", "kim", "--band", "production")
    tidied.ok("quota", "remove", "--yes", "kim", "--band", "production")


def test_events_of_one_task(tidied: RealCell) -> None:
    submitted(tidied, "name: told\n" + SLEEPS + "tasks: 2\n")
    tidied.ok("task", "kill", "told/1")
    kinds = [each["kind"] for each in tidied.items("events", "--task", "told/0")]
    assert "killed" not in kinds
    assert kinds[-1] == "placed"
    assert tidied.items("events", "--task", "told/1")[-1]["kind"] == "killed"
    assert tidied.borgctl("events", "--task", "told/0", "--job", "told").code == 2


def test_a_frozen_cell_goes_on(tidied: RealCell) -> None:
    tidied.ok("freeze", "--reason", "holidays")
    assert "holidays" in tidied.ok("status")
    tidied.ok("unfreeze")
    assert "holidays" not in tidied.ok("status")


def test_the_schema_names_the_bands_of_the_cell(tidied: RealCell) -> None:
    assert "production" in json.dumps(json.loads(tidied.ok("schema")))
