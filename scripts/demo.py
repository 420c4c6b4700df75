#!/usr/bin/env -S .venv/bin/python
"""The demo's story, told by the commands that anybody would type; see scripts/demo."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from borgish.client import Client, quoted
from borgish.wire.api import TaskView

CELL = Path(os.environ.get("BORGISH_DIR", ".borgish"))
JOBS = ("batch", "container", "placed", "sidecar", "ticker", "web")
"""Those of configs/jobs that every machine can run."""
REPLACED_SECONDS_MAX = 60
NOT_REACHABLE = 4
TRIES = 3

NEXT = """
The cell goes on running. Try next (the commands are in .venv/bin; they find the cell in this folder):

  .venv/bin/borgctl task list                 what runs where
  .venv/bin/borgctl why web/0                 why a task is as it is
  .venv/bin/borgctl task logs web/0 -f        what it prints
  .venv/bin/borgctl job scale web 5           more of it
  .venv/bin/borgctl machine cordon m1         no new tasks there
  .venv/bin/borgctl events -f                 what happens, as it happens
  .venv/bin/borgctl dashboard                 all of it, live; t goes back in time
  .venv/bin/borgctl chaos play                a story in which things break and heal
  pkill -9 -F .borgish/borgmaster.pid         no task minds; .venv/bin/borgctl up brings it back
  .venv/bin/borgctl down --purge              the end of it
"""


def main() -> None:
    """Tell the story; exit 1 with what went wrong when it does not go as it should."""
    os.environ["BORGISH_DIR"] = str(CELL)
    say("A cell: one borgmaster, three borglets, SQLite.")
    borgctl("up", "--machines", "3")
    say("Some of the jobs in configs/jobs: services, and one that runs to completion.")
    for name in JOBS:
        submit(Path("configs/jobs", f"{name}.yaml"))
    borgctl("job", "list")
    say("A program of job web is killed with SIGKILL: a scene of `borgctl chaos play`.")
    kill_and_watch("web")
    borgctl("events", "--job", "web")
    say("A batch job ends by itself, each of its tasks with exit code 0.")
    borgctl("job", "wait", "primes", "--for", "finished", "--timeout", "4m")
    borgctl("job", "list")
    show_dashboard()
    print(NEXT)


def say(text: str) -> None:
    print(f"\n# {text}", flush=True)


def borgctl(*arguments: str) -> None:
    """Run a command. When the cell does not answer, bring back what is missing of it and ask again."""
    for _ in range(TRIES):
        print(f"$ borgctl {shlex.join(arguments)}", flush=True)
        code = subprocess.run(["borgctl", *arguments], check=False).returncode
        if code == 0:
            return
        if code != NOT_REACHABLE:
            break
        print("# The cell does not answer; `up` starts what is missing, and the tasks do not mind.")
        subprocess.run(["borgctl", "up"], check=False)
    sys.exit(f"the demo ends here: that command ended with {code}")


def submit(file: Path) -> None:
    if "image:" in file.read_text() and not has_image("busybox:1"):
        print(f"# {file} is left out: it wants Docker and an image, which ./scripts/image busybox:1 makes")
    else:
        borgctl("job", "submit", "--settle", "0", str(file))


def has_image(name: str) -> bool:
    try:
        done = subprocess.run(
            ["docker", "image", "inspect", name], capture_output=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def kill_and_watch(job: str) -> None:
    """Kill a task's program and say how long it took until another one ran in its place."""
    client = Client.find(CELL)
    victim = least_restarted(job)
    path = quoted("tasks", *victim["name"].split("/"))
    print(f"$ borgctl chaos kill {victim['name']}", flush=True)
    command = subprocess.Popen(["borgctl", "chaos", "kill", victim["name"]])
    while is_running(victim["pid"]):
        if command.poll():
            sys.exit(f"the demo ends here: that command ended with {command.returncode}")
        time.sleep(0.001)
    killed_at = time.monotonic()
    while time.monotonic() - killed_at < REPLACED_SECONDS_MAX:
        now = client.get(path, None, TaskView)
        if now.pid and now.pid != victim["pid"]:
            took = (time.monotonic() - killed_at) * 1000
            print(
                f"  replaced: pid {victim['pid']} -> {now.pid} on {now.machine}; {took:.0f} ms later it ran"
            )
            return
        time.sleep(0.001)
    sys.exit(f"the demo ends here: {victim['name']} did not come back in {REPLACED_SECONDS_MAX} s")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def least_restarted(job: str) -> dict[str, Any]:
    """The first restart is at once; a task that was killed in a demo before this one would be held back."""
    command = ["borgctl", "task", "list", "--job", job, "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True)
    tasks: list[dict[str, Any]] = json.loads(done.stdout)
    return min((task for task in tasks if task["pid"]), key=lambda task: task["restarts"])


def show_dashboard() -> None:
    if sys.stdout.isatty():
        say("The dashboard, live; q leaves it.")
        borgctl("dashboard")
    else:
        say("One frame of the dashboard (live on a terminal).")
        borgctl("dashboard", "--once")


if __name__ == "__main__":
    main()
