"""borgctl on a running cell: what people do with jobs, tasks, machines, events and checkpoints."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
import yaml

from borgish.cli import borgctl
from tests.cells import RealCell, runs, wait_until
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    asking,
    becomes,
    lives,
    status_of,
    submitted,
    task_of,
    tasks_of,
)
from tests.forked import plain_environment

COUNTER = """\
name: counter
allow_exec: true
tasks: 2
run:
  - sh
  - -c
  - echo first of $BORGISH_TASK; while ! [ -e go ]; do sleep 0.05; done; echo second; sleep 100000
env: {COLOUR: green}
resources: {cpu: 10m, ram: 16MiB}
"""
SLEEPERS = "name: sleepers\ntasks: 3\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"
TASK_FIELDS = {
    *("name", "job", "index", "state", "phase", "machine", "attempt", "pid", "ports", "started_at", "reason"),
}


@contextmanager
def going_on(made: RealCell, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Run a command that ends only when told to, and read what it writes."""
    with subprocess.Popen(
        [sys.executable, "-m", "borgish.cli.borgctl", "--dir", str(made.folder), *arguments],
        stdout=subprocess.PIPE,
        env=plain_environment(),
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


def test_logs_are_followed(tidied: RealCell) -> None:
    submitted(tidied, COUNTER)
    with going_on(tidied, "task", "logs", "-f", "counter/1") as (process, said):
        assert said.readline() == b"first of ann/counter/1\n"
        tidied.ok("task", "exec", "counter/1", "--", "touch", "go")
        assert said.readline() == b"second\n"
        assert process.poll() is None


def test_logs_of_the_program_before(tidied: RealCell) -> None:
    submitted(tidied, COUNTER)
    pid = task_of(tidied, "ann/counter/0").pid
    assert pid
    tidied.ok("task", "exec", "counter/0", "--", "touch", "go")
    wait_until(lambda: "second" in tidied.ok("task", "logs", "counter/0"), PATIENCE_SECONDS)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: task_of(tidied, "ann/counter/0").restarts == 1, PATIENCE_SECONDS)
    assert tidied.ok("task", "logs", "counter/0", "--previous").startswith("first of ann/counter/0\nsecond\n")
    wait_until(lambda: tidied.ok("task", "logs", "counter/0", "--tail", 1) == "second\n", PATIENCE_SECONDS)


def test_logs_of_a_task_that_finished(tidied: RealCell) -> None:
    text = "name: brief\nrun: [sh, -c, 'echo all is said']\nrestart: {policy: on_failure}\n"
    submitted(tidied, text)
    tidied.ok("job", "wait", "brief", "--for", "finished")
    assert tidied.ok("task", "logs", "brief/0") == "all is said\n"


ARRAY = """
name: array
tasks: 4
restart: {policy: on_failure, attempts: 2, backoff: 100ms}
on_exit: [{codes: [3], do: finish}, {codes: [42], do: fail}, {signals: [KILL], do: restart}]
max_failures: 1
resources: {cpu: 10m, ram: 8MiB}
run: [sh, -c, 'case $BORGISH_INDEX in 0) exit 3;; 1) exit 42;; 2) exit $CODE;; *) sleep 1000;; esac']
"""


def test_a_job_of_which_too_many_tasks_fail_is_ended(tidied: RealCell) -> None:
    submitted(tidied, f"{ARRAY}env: {{CODE: '7'}}\n", "--detach")
    assert tidied.borgctl("job", "wait", "array", "--for", "finished").code == 1
    shown = {task.index: (task.outcome, task.reason) for task in tasks_of(tidied, "ann/array").values()}
    assert shown == {
        0: ("finished", "exit code 3, which is success by on_exit"),
        1: ("failed", "exit code 42, which is final by on_exit"),
        2: ("failed", "exit code 7; failed 2 times, the limit of its restart.attempts"),
        3: ("killed", "2 tasks of ann/array failed, more than its max_failures: 1"),
    }
    job = tidied.items("job", "show", "array")["job"]
    assert (job["finished"], job["failed"], job["killed"], job["outcome"]) == (1, 2, 1, "failed")


def test_a_wait_for_what_is_killed_says_so(tidied: RealCell) -> None:
    submitted(tidied, f"{ARRAY.replace('array', 'slow')}env: {{CODE: '3'}}\n", "--detach")
    wait_until(lambda: tidied.items("job", "show", "slow")["job"]["failed"] == 1, PATIENCE_SECONDS)
    first = task_of(tidied, "ann/slow/3").pid
    assert first
    os.kill(first, signal.SIGKILL)  # a rule has it restarted
    wait_until(lambda: task_of(tidied, "ann/slow/3").restarts == 1, PATIENCE_SECONDS)
    tidied.ok("job", "kill", "--yes", "slow", "--max-affected", 4)
    assert tidied.borgctl("job", "wait", "slow", "--for", "finished").code == 1  # one had failed before
    submitted(tidied, SLEEPERS.replace("sleepers", "batch") + "restart: {policy: on_failure}\n", "--detach")
    tidied.ok("job", "kill", "--yes", "batch", "--max-affected", 5)
    assert tidied.borgctl("job", "wait", "batch", "--for", "finished").code == 5


def test_a_command_beside_a_task_has_its_folder_environment_and_exit_code(tidied: RealCell) -> None:
    submitted(tidied, COUNTER)
    said = tidied.borgctl(
        "task", "exec", "counter/0", "--", "sh", "-c", "echo $BORGISH_TASK $COLOUR; exit 42"
    )
    assert (said.code, said.out) == (42, "ann/counter/0 green\n")
    said = tidied.borgctl("task", "exec", "counter/0", "--timeout", "1s", "--", "sleep", "1000")
    assert said.code == 124, said


def test_scale_up_and_down_leaves_the_rest_alone(tidied: RealCell) -> None:
    submitted(tidied, SLEEPERS)
    before = lives(tidied, "ann/sleepers")
    tidied.ok("job", "scale", "sleepers", 5)
    tidied.ok("job", "wait", "sleepers", "--settle", 0)
    grown = lives(tidied, "ann/sleepers")
    assert len(grown) == 5
    assert {name: life for name, life in grown.items() if name in before} == before
    tidied.ok("job", "scale", "sleepers", 2)
    kept = {f"ann/sleepers/{index}": before[f"ann/sleepers/{index}"] for index in range(2)}
    becomes(lambda: lives(tidied, "ann/sleepers"), kept)
    gone = [life.pid for name, life in grown.items() if name not in kept and life.pid]
    wait_until(lambda: not any(map(runs, gone)), PATIENCE_SECONDS)


def test_restart_gives_the_named_tasks_a_fresh_attempt(tidied: RealCell) -> None:
    submitted(tidied, SLEEPERS + "update: {settle: 1s}\n")
    before = lives(tidied, "ann/sleepers")
    tidied.ok("job", "restart", "sleepers", "0,2")
    wait_until(lambda: fresh(tidied) > before["ann/sleepers/0"].attempt, PATIENCE_SECONDS)
    tidied.ok("job", "wait", "sleepers", "--settle", 0)
    after = lives(tidied, "ann/sleepers")
    assert after["ann/sleepers/1"] == before["ann/sleepers/1"]
    for index in (0, 2):
        name = f"ann/sleepers/{index}"
        assert after[name].attempt > before[name].attempt
        assert after[name].pid != before[name].pid


def fresh(made: RealCell) -> int:
    """Return the lowest attempt of the two that were restarted."""
    return min(task_of(made, f"ann/sleepers/{index}").attempt for index in (0, 2))


def test_kill_ends_one_task_or_all(tidied: RealCell) -> None:
    submitted(tidied, SLEEPERS)
    pids = [life.pid for life in lives(tidied, "ann/sleepers").values() if life.pid]
    tidied.ok("task", "kill", "sleepers/1")
    states = {name: str(task.state) for name, task in tasks_of(tidied, "ann/sleepers").items()}
    assert list(states.values()) == ["running", "dead", "running"]
    assert tidied.items("task", "show", "sleepers/1")["outcome"] == "killed"
    assert "1 task that was killed is pending again" in submitted(tidied, SLEEPERS)
    states = {name: str(task.state) for name, task in tasks_of(tidied, "ann/sleepers").items()}
    assert list(states.values()) == ["running"] * 3
    tidied.ok("job", "kill", "--yes", "sleepers")
    tidied.ok("job", "wait", "sleepers", "--for", "dead")
    wait_until(lambda: not any(map(runs, pids)), PATIENCE_SECONDS)


def test_nothing_is_placed_on_a_cordoned_machine(tidied: RealCell) -> None:
    tidied.ok("machine", "cordon", "m1", "--reason", "new disk")
    tidied.ok("machine", "cordon", "m2")
    submitted_text = tidied.borgctl("job", "submit", "-", "--user", "ann", "--timeout", "1s", stdin=SLEEPERS)
    assert submitted_text.code == 3, submitted_text
    assert "cordoned" in submitted_text.err
    tidied.ok("machine", "uncordon", "m1")
    tidied.ok("job", "wait", "sleepers", "--settle", 0)
    assert {task.machine for task in tasks_of(tidied, "ann/sleepers").values()} == {"m1"}
    tidied.ok("machine", "uncordon", "m2")


def test_wait_says_whether_it_came_to_pass(tidied: RealCell) -> None:
    submitted(tidied, SLEEPERS)
    assert tidied.borgctl("job", "wait", "sleepers", "--for", "dead", "--timeout", "300ms").code == 3
    assert tidied.borgctl("job", "wait", "sleepers", "--for", "finished").code == 2
    assert tidied.borgctl("job", "wait", "sleepers", "--for", "nothing").code == 2
    assert tidied.borgctl("job", "wait", "no-such-job").code == 1


def test_a_checkpoint_is_made_and_listed(tidied: RealCell) -> None:
    submitted(tidied, SLEEPERS)
    position = status_of(tidied).position
    assert f"checkpoint at position {position}" in tidied.ok("checkpoint", "create")
    newest = tidied.items("checkpoint", "list")[0]
    assert newest["position"] == position
    assert newest["sha256"] in tidied.ok("checkpoint", "list", "-o", "wide")


def test_events_are_followed(tidied: RealCell) -> None:
    with going_on(tidied, "events", "-f", "-o", "json", "-n", "1") as (process, said):
        json.loads(said.readline())  # the latest of those before
        submitted(tidied, SLEEPERS)
        kinds = []
        while "placed" not in kinds:
            event = json.loads(said.readline())
            if event.get("job") == "ann/sleepers":
                kinds.append(event["kind"])
        assert kinds == ["submitted", "placed"]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    positions = [event["position"] for event in tidied.items("events", "--job", "sleepers")]
    assert positions == sorted(positions)


def test_names_can_be_shortened_where_unique(tidied: RealCell) -> None:
    submitted(tidied, SLEEPERS)
    for name in ("sleepers/0", "ann/sleepers/0"):
        assert tidied.items("task", "show", name)["name"] == "ann/sleepers/0"
    for user in ("ann", "bob"):
        tidied.ok(
            "job", "submit", "-", "--settle", 0, "--user", user, stdin=SLEEPERS.replace("sleepers", "twice")
        )
    said = tidied.borgctl("job", "show", "twice")
    assert said.code == 2, said
    assert "ann/twice, bob/twice" in said.err
    assert tidied.items("machine", "show", "m2")["name"] == "m2"
    assert tidied.borgctl("machine", "show", "m").code == 2


def test_every_list_has_every_form(tidied: RealCell, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process: what is shown does not depend on its start, which would take most of the time."""

    def shown(*arguments: str) -> str:
        capsys.readouterr()
        assert borgctl.run(["--dir", str(tidied.folder), *arguments]) == 0
        return capsys.readouterr().out

    submitted(tidied, SLEEPERS)
    tidied.ok("checkpoint", "create")
    for noun in ("job", "task", "machine", "events", "checkpoint"):
        every = ("--all",) * (noun in ("job", "task"))  # whatever ended before, line by line
        listing = (noun,) if noun == "events" else (noun, "list", *every)
        items = json.loads(shown(*listing, "-o", "json"))
        assert items
        as_yaml = yaml.safe_load(shown(*listing, "-o", "yaml"))
        assert [item.keys() for item in as_yaml][:2] == [item.keys() for item in items][:2]
        key = "position" if noun in ("events", "checkpoint") else "name"
        assert {str(item[key]) for item in items} <= set(shown(*listing, "-o", "name").split())
        by_line = [json.loads(line) for line in shown(*listing, "-o", "jsonl").splitlines()]
        assert [item[key] for item in by_line] == [item[key] for item in items]
        rows = list(csv.DictReader(io.StringIO(shown(*listing, "-o", "csv"))))
        assert [row[key] for row in rows] == [str(item[key]) for item in items]
        filled = shown(*listing, "-o", f"template={{{key}}}!").splitlines()
        assert filled == [f"{item[key]}!" for item in items]
        table, wide = shown(*listing).splitlines(), shown(*listing, "-o", "wide").splitlines()
        assert len(wide[0].split()) > len(table[0].split())
        assert len(table) == len(wide) == len(items) + 1


def test_a_task_is_shown_complete(tidied: RealCell) -> None:
    submitted(tidied, SLEEPERS)
    shown = tidied.items("task", "show", "sleepers/0")
    assert shown.keys() >= TASK_FIELDS
    with asking(tidied) as client:
        raw = json.loads(client.raw("GET", "/v1/tasks/ann/sleepers/0"))
    assert {key: shown[key] for key in TASK_FIELDS} == {key: raw[key] for key in TASK_FIELDS}
    assert yaml.safe_load(tidied.ok("task", "show", "sleepers/0", "-o", "yaml"))["pid"] == shown["pid"]
