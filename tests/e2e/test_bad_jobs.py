"""Jobs that cannot run well: what submit says and ends with, what why says, what the task's record holds.

All are submitted side by side, since each takes its time; the daemons live on.
"""

import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import pytest

from tests.cells import RealCell, wait_until
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    lives,
    said_at_last,
    status_of,
    submitted,
    task_of,
    watched_cell,
)
from tests.forked import Ended

SMALL = "resources: {cpu: 10m, ram: 32MiB}\n"
BAD = {
    "no-command": "run: [no-such-program-here]\n" + SMALL,
    "no-folder": "run: [sleep, '1000']\nworkdir: /no/such/folder\n" + SMALL,
    "crashes": "run: [sh, -c, 'echo oh dear; exit 3']\n" + SMALL,
    "dies-soon": "run: [sh, -c, 'echo oh dear; sleep 0.5; exit 3']\n" + SMALL,
    "too-big": "tasks: 2\nrun: [sleep, '1000']\nresources: {cpu: 10m, ram: 10TiB}\n",
    "sick": (
        "run: [sleep, '1000']\n"
        "health: {command: [sh, -c, 'echo feeling bad; exit 4'], interval: 200ms, failures: 2, grace: 0s}\n"
    )
    + SMALL,
    "gives-up": "run: [sh, -c, 'exit 5']\nrestart: {policy: on_failure, attempts: 2}\n" + SMALL,
    "hungry": (
        "run: [python3, -c, 'import time; x = bytearray(300 << 20); time.sleep(1000)']\n"
        "restart: {policy: never}\nresources: {cpu: 10m, ram: 48MiB}\n"
    ),
}
FOLLOWED = "12s"
TROUBLE = {
    "no-command": "held",
    "no-folder": "held",
    "crashes": "restarts in",
    "dies-soon": "restarts in",
    "too-big": "machines fit",
    "sick": "unhealthy",
}
"""What is said of each that cannot come up; the others may be up for a moment, and are dead then."""


class Outcome(NamedTuple):
    """What became of one bad job."""

    said: Ended
    why: str
    task: dict[str, Any]


class Tried(NamedTuple):
    """What became of all of them, and the daemons before they came."""

    made: RealCell
    pids: dict[str, int]
    outcomes: dict[str, Outcome]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tried]:
    with watched_cell(tmp_path_factory.mktemp("bad") / "cell", machines=2) as made:
        submitted(made, "name: good\nrun: [sleep, '1000']\n" + SMALL)
        pids = {name: made.pid(name) for name in ("borgmaster", "m1", "m2")}
        before = lives(made, "ann/good")
        with ThreadPoolExecutor(len(BAD)) as crowd:
            outcomes = dict(crowd.map(lambda name: (name, try_job(made, name)), BAD))
        assert lives(made, "ann/good") == before
        yield Tried(made, pids, outcomes)


def try_job(made: RealCell, name: str) -> Outcome:
    text = f"name: {name}\n{BAD[name]}"
    said = made.borgctl("job", "submit", "-", "--user", "ann", "--timeout", FOLLOWED, stdin=text)
    if name in TROUBLE:
        said = said_at_last(made, f"ann/{name}", said, TROUBLE[name], FOLLOWED)
    else:
        made.ok("job", "wait", name, "--for", "dead")
    if name == "crashes":
        wait_until(
            lambda: (task := task_of(made, "ann/crashes/0")).restarts >= 2 and not task.pid, PATIENCE_SECONDS
        )
    if name == "sick":
        wait_until(lambda: task_of(made, "ann/sick/0").restarts >= 1, PATIENCE_SECONDS)
    shown = made.borgctl("task", "show", f"{name}/0", "-o", "json")
    return Outcome(said, made.borgctl("why", f"{name}/0").out, json.loads(shown.out or "{}"))


def test_the_daemons_live_on(tried: Tried) -> None:
    assert {name: tried.made.pid(name) for name in tried.pids} == tried.pids


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-command", "no command 'no-such-program-here' in PATH"),
        ("no-folder", "cannot work in '/no/such/folder': No such file or directory"),
    ],
)
def test_what_cannot_start_is_tried_everywhere_and_then_held(tried: Tried, name: str, words: str) -> None:
    said, why, task = tried.outcomes[name]
    assert said.code == 1, said
    assert "0 of 1 task up, 1 pending: held, since it fails wherever it is: task 0 failed 2 times" in said.err
    assert f"cannot start: {words}" in said.err
    assert f"ann/{name}/0 is pending" in why
    assert "on 2 machines" in why
    assert words in why
    assert (task["state"], task["pid"], task["exit_code"]) == ("pending", None, None)
    assert words in task["reason"]


@pytest.mark.parametrize("name", ["crashes", "dies-soon"])
def test_what_dies_soon_fails_the_submission_with_its_last_words(tried: Tried, name: str) -> None:
    said, _, _ = tried.outcomes[name]
    assert said.code == 1, said
    reason = r"0 of 1 task up: task 0 (backing off|crash-looping): exit code 3; restarts in"
    assert re.search(reason, said.err)
    assert "    | oh dear\n" in said.err
    assert f"hint: borgctl task logs ann/{name}/0\n" in said.err


def test_what_crashes_again_and_again_waits_longer_each_time(tried: Tried) -> None:
    _, why, task = tried.outcomes["crashes"]
    assert task["phase"] in ("backing off", "crash-looping")
    assert "its program last ended with exit code 3" in why
    assert "restart 2" in why
    assert (task["state"], task["exit_code"], task["signal"]) == ("running", 3, None)
    assert task["restarts"] >= 2
    assert tried.made.ok("task", "logs", "crashes/0", "--previous") == "oh dear\n"


def test_what_fails_too_often_is_dead(tried: Tried) -> None:
    """It was up for a moment, which is all that submit waits for; who wants more waits for the end."""
    _, why, task = tried.outcomes["gives-up"]
    said = tried.made.borgctl("job", "wait", "gives-up", "--for", "finished")
    assert said.code == 1, said
    assert "1 failed" in said.err
    assert "exit code 5; failed 2 times, the limit of its restart.attempts" in why
    assert (task["state"], task["exit_code"], task["restarts"]) == ("dead", 5, 1)


def test_what_fits_nowhere_says_what_would(tried: Tried) -> None:
    said, why, task = tried.outcomes["too-big"]
    assert said.code == 3, said
    assert "0 of 2 machines fit: 2 have too little ram free (needs 10TiB, most free " in said.err
    assert "hint: can never fit: no machine has 10TiB of ram (the largest has " in said.err
    assert "ann/too-big/0 is pending" in why
    assert re.search(r"fits \d machines? with ram <= [\d.]+[GMT]iB", why)
    assert (task["state"], task["phase"], task["machine"], task["attempt"]) == ("pending", None, None, 0)
    assert "too little ram free" in task["reason"]


def test_what_does_not_answer_its_probe_is_restarted(tried: Tried) -> None:
    said, why, task = tried.outcomes["sick"]
    assert said.code == 1, said
    assert "unhealthy: probe failed 2 times in a row: " in said.err
    assert "unhealthy: probe failed 2 times in a row: " in why
    assert task["state"] == "running"
    assert task["phase"] != "healthy"
    assert task["restarts"] >= 1


def test_what_uses_more_memory_than_its_limit_is_ended(tried: Tried) -> None:
    """By the kernel where control groups can be had, by the borglet's look at its use elsewhere."""
    _, why, task = tried.outcomes["hungry"]
    assert task["state"] == "dead"
    assert task["signal"] == 9
    assert task["reason"] == "out of memory: it reached its limit of 48MiB; raise resources.ram"
    assert "failed: out of memory: it reached its limit of 48MiB" in why


def test_a_port_that_a_foreign_program_holds_is_left_alone(tried: Tried) -> None:
    made = tried.made
    made.ok("machine", "cordon", "m2")
    text = "name: first\nrun: [sleep, '1000']\nports: [http]\n" + SMALL
    submitted(made, text)
    used = task_of(made, "ann/first/0").ports["http"]
    with held(used + 1, used + 2):
        submitted(made, text.replace("first", "next"))
        task = task_of(made, "ann/next/0")
        assert task.ports["http"] not in (used + 1, used + 2)
        what = [event["text"] for event in made.items("events", "--job", "next")]
        assert any(f"port {used + 1}" in text and "in use" in text for text in what), what
    made.ok("machine", "uncordon", "m2")


@contextmanager
def held(*ports: int) -> Iterator[None]:
    """Be a program that listens on some ports; where another is already, that one does as well."""
    with ExitStack() as all_of_them:
        for port in ports:
            with suppress(OSError):
                all_of_them.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


def test_the_bad_can_be_killed_and_nothing_of_them_stays(tried: Tried) -> None:
    made = tried.made
    for name in ("no-command", "no-folder", "crashes", "dies-soon", "sick", "too-big"):
        made.ok("job", "kill", "--yes", name)
    wait_until(lambda: status_of(made).pending == 0, PATIENCE_SECONDS)
    wait_until(lambda: not {"ann/crashes/0", "ann/sick/0"} & lives(made).keys(), PATIENCE_SECONDS)
