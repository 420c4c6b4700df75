"""Lists of a running cell: filtered, sorted, of the past, summed up; and a job as the file it came from."""

from pathlib import Path

from tests.cells import RealCell
from tests.e2e.watched import status_of, submitted

WEB = """\
name: lists-web
tasks: 2
labels: {tier: front, team: lists}
ports: [http]
env: {GREETING: "hello: it's"}
priority: 107
resources: {cpu: 10m, ram: 8MiB}
run: [sleep, '100000']
"""
ARRAY = """\
name: lists-array
tasks: 6
labels: {team: lists}
restart: {policy: on_failure}
resources: {cpu: 10m, ram: 8MiB}
run: [sh, -c, 'exit 0']
"""


def test_lists_of_a_cell(tidied: RealCell) -> None:
    submitted(tidied, WEB)
    position = status_of(tidied).position
    submitted(tidied, ARRAY)
    tidied.ok("job", "wait", "lists-array", "--for", "finished")

    def names(*arguments: object) -> list[str]:
        return tidied.ok(*arguments, "-l", "team=lists", "-o", "name").split()

    web, array = "ann/lists-web", "ann/lists-array"
    assert names("job", "list") == [array, web]
    assert names("job", "list", "--sort", "-tasks") == [web, array]
    assert names("job", "list", "--state", "running", "--user", "ann") == [web]
    assert names("job", "list", "--at", position) == [web]
    assert (
        names("task", "list", "--sort", "-name", "--limit", 3) == [f"{array}/5", f"{web}/0", f"{web}/1"][::-1]
    )
    assert names("task", "list", "--sort", "cpu", "--at", position) == [f"{web}/0", f"{web}/1"]
    table = tidied.ok("task", "list", "lists-array").splitlines()
    assert [line.split()[:3] for line in table[1:]] == [[f"{array}/0-5", "dead", "(finished)"]]
    port = tidied.items("task", "show", "lists-web/0")["ports"]["http"]
    for command in (
        ("task", "list", "-o", "wide"),
        ("job", "show", "lists-web"),
        ("task", "show", "lists-web/0"),
    ):
        assert f"http=127.0.0.1:{port}" in tidied.ok(*command)
    machines = tidied.ok(
        "machine", "list", "--sort", "name", "--state", "up", "-o", "template={name}"
    ).split()
    assert machines == sorted(machines) != []


def test_lists_that_come_whole(own: RealCell, tmp_path: Path) -> None:
    for name, labels, jobs in (("shop", "{tier: front}", 2), ("etl", "{}", 1)):
        documents = [
            f"kind: app\nname: {name}\nlabels: {labels}\n",
            *(_one(f"{name}-{n}") for n in range(jobs)),
        ]
        (tmp_path / f"{name}.yaml").write_text("---\n".join(documents))
        own.ok("apply", tmp_path / f"{name}.yaml", "--user", "ann", "--detach")
    for name in ("often", "rarely"):
        cron = f"kind: cron\nschedule: '0 3 * * *'\n{_one(name)}"
        own.ok("job", "submit", "-", "--user", "bob", stdin=cron)
    own.ok("cron", "pause", "rarely")
    for user, cpu in (("ann", 1), ("bob", 2)):
        own.ok("quota", "set", user, "--band", "batch", "--cpu", cpu, "--ram", "1GiB")
    own.ok("checkpoint", "create", "--name", "noon")

    def names(*words: object) -> list[str]:
        return own.ok(*words, "-o", "name").split()

    assert names("app", "list", "--user", "ann") == ["ann/etl", "ann/shop"]
    assert names("app", "list", "--sort", "jobs", "--limit", 1) == ["ann/shop"]
    assert names("app", "list", "-l", "tier=front") == ["ann/shop"]
    assert names("app", "list", "--state", "dead") == []
    assert names("app", "history", "shop", "--limit", 1) == ["1"]
    assert names("cron", "list", "--state", "paused", "--user", "bob") == ["bob/rarely"]
    assert names("cron", "list", "--sort=-name") == ["bob/rarely", "bob/often"]
    assert names("quota", "list", "--sort", "limit") == ["bob/batch", "ann/batch"]
    assert names("quota", "list", "--user", "ann") == ["ann/batch"]
    assert names("token", "list", "--state", "ended") == []
    kept = own.ok("checkpoint", "list", "--state", "good", "--limit", 1, "--columns", "name")
    assert kept.split() == ["NAME", "noon"]
    (machine,) = names("machine", "list")
    positions = list(map(int, names("history", "--machine", machine, "--sort=-position")))
    assert positions == sorted(positions) != []


def _one(name: str) -> str:
    """Return a job as a document of a file."""
    return f"name: {name}\nrun: [sleep, '100000']\nresources: {{cpu: 10m, ram: 8MiB}}\n"


def test_a_job_that_is_shown_as_a_file_is_unchanged_when_that_is_submitted(tidied: RealCell) -> None:
    submitted(tidied, WEB)
    before = tidied.items("job", "show", "lists-web")
    file = tidied.ok("job", "show", "lists-web", "-o", "file")
    assert "is there already, exactly like this" in tidied.ok("job", "submit", "-", "--detach", stdin=file)
    after = tidied.items("job", "show", "lists-web")
    assert (after["spec"], after["job"]["generation"]) == (before["spec"], before["job"]["generation"])
