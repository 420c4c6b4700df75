"""A job of a real cell is changed while it runs: a version rolls through, one that crashes is held, and is
taken back. What it says is in docs/how-to/updates.md."""

from tests.cells import RealCell
from tests.e2e.watched import tasks_of

WEB = """
name: {name}
user: ann
tasks: 3
run: [python3, -m, {module}, --bind, 127.0.0.1, "{{{{port.http}}}}"]
ports: [http]
env: {{RELEASE: "{release}"}}
health: {{http: /, port: http, interval: 1s}}
resources: {{cpu: 10m, ram: 32MiB}}
update: {{settle: 1s, canaries: {canaries}, on_failure: {on_failure}}}
"""


def web(
    release: int,
    module: str = "http.server",
    canaries: int = 0,
    on_failure: str = "pause",
    name: str = "web",
) -> str:
    return WEB.format(name=name, release=release, module=module, canaries=canaries, on_failure=on_failure)


def page(release: int, module: str = "http.server") -> str:
    return web(release, module, name="page")


def versions(cell: RealCell, job: str = "ann/web") -> list[int]:
    return [task.version for task in tasks_of(cell, job).values()]


def test_versions_roll_are_held_and_are_taken_back(tidied: RealCell) -> None:
    cell = tidied
    cell.ok("job", "submit", "-", stdin=page(1))
    planned = cell.ok("plan", "-", stdin=page(2))
    assert "ann/page would be updated to version 2: 3 tasks to restart" in planned
    assert "0-2    restart where they are" in planned
    rolled = cell.ok("job", "submit", "-", stdin=page(2))
    assert "ann/page: version 2: complete; 3 of 3 tasks up after" in rolled
    assert versions(cell, "ann/page") == [2, 2, 2]

    held = cell.borgctl("job", "submit", "-", stdin=page(3, "http.sever"))
    assert held.code == 1, held
    assert "ann/page: version 3: 1 of 3 tasks changed; paused: task 0 " in held.err
    assert "No module named http.sever" in held.err
    assert "`borgctl job update undo ann/page` goes back to version 2" in held.err
    assert sorted(versions(cell, "ann/page")) == [2, 2, 3]  # the others were left alone
    assert cell.borgctl("job", "wait", "page").code == 1
    assert "paused: task 0 " in cell.ok("job", "update", "status", "page")
    cell.ok("job", "update", "undo", "page")
    assert "version 4: complete; 3 of 3 tasks up" in cell.ok("job", "wait", "page")
    assert versions(cell, "ann/page").count(4) == 3


def test_a_canary_waits_and_what_fails_is_undone_by_itself(tidied: RealCell) -> None:
    cell = tidied
    cell.ok("job", "submit", "-", stdin=web(1, canaries=1))
    waits = cell.borgctl("job", "submit", "-", stdin=web(2, canaries=1))
    assert waits.code == 0, waits
    assert "waits to be promoted: 1 task of the new version up and well" in waits.out
    before = cell.items("job", "update", "status", "web")
    number = before["version"]
    assert before["rollout"]["hold"] == "canary"
    assert before["versions"] == {str(number - 1): 2, str(number): 1}
    cell.ok("job", "update", "promote", "web")
    cell.ok("job", "wait", "web")
    assert versions(cell) == [number] * 3

    undone = cell.borgctl("job", "submit", "-", stdin=web(3, "http.sever", on_failure="undo"))
    assert undone.code == 1, undone
    assert f"ann/web: version {number + 2} replaces version {number + 1}: undone since task 0" in undone.err
    cell.ok("job", "wait", "web")
    assert versions(cell).count(number + 1) == 0
    status = cell.ok("job", "update", "status", "web")
    assert f"version {number + 2} is version {number} again: complete" in status
    cell.ok("job", "restart", "web", "--now")
    cell.ok("job", "wait", "web")
