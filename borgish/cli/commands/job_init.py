"""``borgctl job init``: a first job file, written by questions.

What is given as an option is not asked, and without a terminal nothing is: what is not given has its default.
"""

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

import borgish.cli.commands.update  # noqa: F401 - its commands are of the same noun
from borgish.cli.commands.job import app
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.screen import is_terminal, print_err, print_out
from borgish.cli.session import session_of
from borgish.errors import Invalid
from borgish.vocabulary import NAME_HINT, NAME_PATTERN, TASKS_PER_JOB_MAX

SHORT_COMMAND = "sleep 1h"


@app.command()
def init(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="File to write. Default: NAME.yaml, here.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the job.")] = "",
    run: Annotated[str, typer.Option("--run", metavar="COMMAND", help="What each task runs.")] = "",
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="The image that it runs in, on Docker.")
    ] = "",
    tasks: Annotated[
        int | None, typer.Option("--tasks", min=1, max=TASKS_PER_JOB_MAX, help="How many tasks.")
    ] = None,
    ports: Annotated[
        list[str] | None, typer.Option("--port", metavar="NAME", help="Name of a port; can be repeated.")
    ] = None,
    health: Annotated[
        str, typer.Option("--health", metavar="PATH", help="Probe this path by HTTP on the first port.")
    ] = "",
    cpu: Annotated[str, typer.Option("--cpu", help="Cores of each task: 0.5 or 500m.")] = "",
    ram: Annotated[str, typer.Option("--ram", help="Memory of each task: 128MiB.")] = "",
    once: Annotated[
        bool | None, typer.Option("--once/--service", help="It runs to its end, or for ever.")
    ] = None,
    yes: YesOption = False,
) -> None:
    """Write a job file by questions.

    Each question has an option that answers it. The file is one that `borgctl job check` accepts, with a word
    to each line; nothing is submitted. A file that is there is replaced only when you say so.
    """
    from borgish.cli.commands.check import check_paths
    from borgish.cli.render import Form

    asks = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    name = name or _asked("Name of the job", "", asks=asks)
    if not re.fullmatch(NAME_PATTERN, name):
        what = f"'{name}' is not the name of a job" if name else "a job needs a name"
        raise Invalid(what, f"--name NAME: {NAME_HINT}")
    path = file or Path(f"{name}.yaml")
    if path.exists():
        confirm(f"This replaces the file {path}.", yes=yes)
    image = image or ("" if run else _asked("Image, for a container; none for a program", "", asks=asks))
    run = run or _asked("Command that each task runs", "" if image else SHORT_COMMAND, asks=asks)
    tasks = tasks or _count(_asked("Tasks", "1", asks=asks))
    named = ports if ports is not None else _asked("Names of ports, with commas", "", asks=asks).split(",")
    names = [each.strip() for each in named if each.strip()]
    if names and not health:
        health = _asked(f"Path to probe by HTTP on port {names[0]}, like /; none for no probe", "", asks=asks)
    if once is None:
        once = asks and not typer.confirm("Is it to run for ever", default=True, err=True)
    cpu = cpu or _asked("Cores of each task", "100m", asks=asks)
    ram = ram or _asked("Memory of each task", "64MiB", asks=asks)
    text = job_text(name, run, image, tasks, names, health, cpu, ram, once=once)
    path.write_text(text, "utf-8")
    code = check_paths(session_of(context), [path], "", {}, Form.TABLE)
    if code:
        print_err(f"{path} is written, with what is wrong in it")
        raise typer.Exit(code)
    print_out(f"wrote {path}")
    print_err(f"Next: borgctl plan {shlex.quote(str(path))}; borgctl job submit {shlex.quote(str(path))}")


def job_text(
    name: str,
    run: str,
    image: str,
    tasks: int,
    ports: list[str],
    health: str,
    cpu: str,
    ram: str,
    *,
    once: bool,
) -> str:
    """Return a job file with a word to each line. Its values are written as JSON, which is YAML as well."""
    import json

    def shown(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    lines = [
        "# Written by `borgctl job init`; `borgctl job check` reads it, `borgctl schema` has all fields.",
        f"name: {shown(name)}",
        f"tasks: {tasks} # so many of it run: {name}/0, {name}/1 ...",
        "# priority: production # for what may not wait; users need a grant. Without it: free, the lowest",
    ]
    if image:
        lines.append(f"image: {shown(image)} # it has to be on the machines: borgish fetches none")
    if words := _words(run):
        lines.append("# What each task runs, word by word. {{port.NAME}} and {{task.index}} are filled in.")
        lines.append(f"run: {shown(words)}")
    if ports:
        lines.append("# borgish chooses the numbers; `run` has them as {{port.NAME}}.")
        lines.append(f"ports: {shown(ports)}")
    if health:
        lines.append("# A task is up once this answers, and is restarted when it no longer does.")
        lines.append(f"health: {{http: {shown(health)}, port: {shown(ports[0])}, interval: 10s}}")
    if once:
        lines.append("restart: {policy: on_failure} # it runs to its end; what fails is tried again")
    lines.append("# What each task has; more it cannot use.")
    lines.append(f"resources: {{cpu: {shown(cpu)}, ram: {shown(ram)}}}")
    return "\n".join(lines) + "\n"


def _words(run: str) -> list[str]:
    try:
        return shlex.split(run)
    except ValueError as error:
        reason = str(error).lower()
        raise Invalid(f"the command {run!r} cannot be read: {reason}", "Quote it as in a shell") from None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= TASKS_PER_JOB_MAX):
        raise Invalid(f"'{text[:40]}' is not a number of tasks", f"1 to {TASKS_PER_JOB_MAX}")
    return int(text)


def _asked(question: str, default: str, *, asks: bool) -> str:
    """Return what a person answers; the default where there is nobody to ask."""
    if not asks:
        return default
    return str(typer.prompt(question, default=default, show_default=bool(default), err=True)).strip()
