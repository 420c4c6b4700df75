"""borgctl: the command by which people use a cell.

Here are the tree of commands and the global options; each command is in the file of its noun, which
is imported only when it is called: a short command, and the help, must start in a fraction of a second.
"""

import os
import sys
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo

import borgish
from borgish.cli.screen import let_go, make_usable
from borgish.cli.session import DirOption, Noun, ReadFrom, Session

# In the order of the help: a cell, what runs in it, what it runs on, what happened, the rest. Each with its
# module, its app there, and the first sentence of its help.
COMMANDS = {
    "up": ("up:up_app", "Start a local cell and wait until it serves."),
    "down": ("up:down_app", "Stop the local cell and every task."),
    "status": ("status:app", "Show the cell at one glance."),
    "apply": ("apply:apply_app", "Make an application what its files say."),
    "app": ("app:app", "Inspect, undo, run and end applications."),
    "job": ("job_init:app", "Submit, inspect, change and end jobs."),
    "cron": ("cron:app", "Jobs that run on time."),
    "plan": ("submit:plan_app", "Say what would follow if a job were submitted."),
    "task": ("task:app", "List and inspect tasks, and read their output."),
    "logs": ("logs:logs_app", "Show what tasks wrote, many at once."),
    "port-forward": (
        "port_forward:port_forward_app",
        "Reach a port of a task from here.",
    ),
    "why": ("events:why_app", "Say why a task, a job or an application is as it is."),
    "machine": ("invite:app", "The machines of the cell."),
    "quota": ("quota:app", "Limits on what users may ask for at a time, by band."),
    "user": ("access:user_app", "Users: who may have jobs, and what they are granted."),
    "group": ("access:group_app", "Groups: users who have jobs together."),
    "token": ("access:token_app", "Tokens: by which people and programs prove who they are."),
    "secret": ("secret:secret_app", "Secrets: values that jobs get, and nobody is shown."),
    "login": ("cell:login_app", "Keep a token for a cell, and work with it from now on."),
    "cell": ("adopt:app", "The cells that you work with."),
    "audit": ("audit:app", "What people did, and whether its log is as it was written."),
    "doctor": ("doctor:app", "Look for trouble in the cell and on this host."),
    "budget": ("budget:app", "Limits on tasks that may be down on purpose, across jobs."),
    "freeze": ("freeze:freeze_app", "Take no task down on purpose until `borgctl unfreeze`."),
    "unfreeze": ("freeze:unfreeze_app", "Let tasks be taken down on purpose again, within budgets."),
    "events": ("events:events_app", "Show what happened, the latest last."),
    "history": ("history:app", "Show who did what, when and why, the latest last."),
    "diff": ("diff:app", "Show what differs between two moments, or in files."),
    "checkpoint": ("checkpoint:app", "Snapshots of the whole cell."),
    "rollback": ("rollback:app", "Make the cell again what it was to be at a moment."),
    "archive": ("archive:app", "Events, attempts and usage, as Parquet files."),
    "chaos": ("chaos:app", "Break things in a local cell, and see it heal."),
    "dashboard": ("extras:dashboard_app", "Show the cell, live, and walk through it."),
    "schema": ("extras:schema_app", "Print the JSON Schema of a job file."),
    "completion": ("extras:completion_app", "Print the completion script of a shell."),
}


class CommandsOnDemand(TyperGroup):
    """A group whose commands are imported when they are called; lists of them show what stands for each."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # The help of borgctl and its completion need names and a sentence each, and not the modules of all.
        self.commands = {name: TyperCommand(name, help=words) for name, (_, words) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names. Ends with usage, and with what was meant."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from borgish.cli.words import no_such_command, same_command

            ours, completes = same_command(args), ctx.resilient_parsing
            if ours is None and not completes:
                ctx.fail(no_such_command(ctx.command_path, args, COMMANDS, _meant(args)))
            if ours == ["--help"] and not completes:
                sys.stdout.write(f"{ctx.get_help()}\n")
                ctx.exit()
            if ours == ["--version"] and not completes:
                _show_version(wanted=True)
            args = ours or args
        # What kubectl's users type first. Our ``apply`` is for applications, and has no such option.
        if args[0] == "apply" and "-f" in args and not ctx.resilient_parsing:
            from borgish.cli.words import submitted

            ctx.fail(f"No such option '-f'. Did you mean '{ctx.command_path} {submitted(args)}'?")
        name, _, rest = super().resolve_command(ctx, args)
        if not name:  # a completion is of an unknown command
            return name, None, rest
        command = load(name, rest)
        if not rest or not {"--help", "-h"}.isdisjoint(rest):
            from borgish.cli.examples import add_examples

            add_examples(name, command)
        return name, command, rest


def load(name: str, words: Sequence[str] = ()) -> Any:
    """Return a command, from its module. Of a group whose command is named by ``words``, only that is made:
    typer takes longer for all of them than to import them."""
    module, _, app_name = COMMANDS[name][0].partition(":")
    app = getattr(import_module(f"borgish.cli.commands.{module}"), app_name)
    called = [it for it in app.registered_commands if [_name(it)] == list(words[:1])]
    if called and app.info.cls is Noun:
        app = copy(app)
        app.registered_commands, app.registered_groups = called, []
        command: Any = typer.main.get_group(app)
    else:
        command = typer.main.get_command(app)
    command.name = name
    return command


def _meant(words: Sequence[str]) -> str:
    """Return what the words of another system mean, as it can be typed here; "" where nobody knows."""
    from borgish.cli.words import meant_at_top, without_foreign_options

    name, _, rest = meant_at_top(words).partition(" ")
    return f"{name} {without_foreign_options(load(name), rest)}".rstrip() if rest else name


def _name(command: CommandInfo) -> str:
    """Return by what a command is called, as typer names those that say nothing of it."""
    return command.name or typer.main.get_command_name(getattr(command.callback, "__name__", ""))


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value alone
    if wanted:
        sys.stdout.write(f"borgctl {borgish.__version__}\n")
        raise typer.Exit


app = typer.Typer(
    cls=CommandsOnDemand,
    add_completion=False,
    rich_markup_mode=None,  # plain help: no import of rich
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def borgctl(
    context: typer.Context,
    folder: DirOption = None,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            "--master",
            envvar=["BORGISH_MASTER", "BORGISH_URL"],
            help="URL of the borgmaster, if it is not a local cell's; several with commas.",
        ),
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(envvar="BORGISH_TOKEN_FILE", help="File that holds the token.")
    ] = None,
    read_from: Annotated[
        ReadFrom,
        typer.Option(
            envvar="BORGISH_READ_FROM",
            help="Who answers what only reads: a standby spares the leader, and is a moment behind.",
        ),
    ] = ReadFrom.LEADER,
    at_least: Annotated[
        int | None,
        typer.Option(
            metavar="POSITION",
            min=0,
            help="With --read-from standby: wait until its copy has this position of the journal.",
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Run jobs on a cell of machines.

    A first walk: `borgctl up`, `borgctl job submit FILE`, `borgctl dashboard`, `borgctl down`.
    Other words that work: ps, ls, exec, cp, version, and help COMMAND.

    Exit codes: 0 done, 1 failed, 2 usage, 3 accepted but not all placed in the time given, 4 not
    reachable or not allowed; of a job that was to finish, 5 killed, 6 gone. Of doctor, 3 are warnings.
    """
    from_standby = read_from is ReadFrom.STANDBY
    if at_least is not None and not from_standby:
        raise typer.BadParameter(
            "is for --read-from standby: the leader has every position there is", param_hint="--at-least"
        )
    context.obj = Session(folder, url, token_file, from_standby, at_least or 0)


def main() -> None:
    """Run borgctl with the arguments of this process; ends it with the exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run borgctl with these arguments and return its exit code."""
    if "_BORGCTL_COMPLETE" in os.environ:
        from typer._completion_classes import completion_init

        completion_init()  # registers the shells
    make_usable()
    stdout, stderr = sys.stdout, sys.stderr
    try:
        app(arguments, prog_name="borgctl")
    except SystemExit as ended:
        if sys.stdout is not stdout:  # typer met a broken pipe, wrapped the streams, and calls it a failure
            sys.stdout, sys.stderr = stdout, stderr
            return _reader_gone()
        return _flushed(ended.code if isinstance(ended.code, int) else 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _reader_gone()
    except Exception as error:  # the one place that turns errors into words
        from borgish.cli.errors import report, wants_traceback
        from borgish.errors import BorgishError

        if wants_traceback() and not isinstance(error, BorgishError):
            raise
        return report(error)
    return 0


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    return code


def _reader_gone() -> int:
    """End quietly when who reads our output has had enough (``borgctl task list | head -1``)."""
    let_go(sys.stdout)
    return 0


if __name__ == "__main__":
    main()
