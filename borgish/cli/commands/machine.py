"""``borgctl machine``: list, show, cordon, uncordon, taint, untaint, remove. Drains are in ``drain``."""

from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import AtOption, client_at
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.listing import (
    CellsOption,
    LimitOption,
    Listing,
    WatchOption,
    columns_option,
    paged,
    show_asked,
)
from borgish.cli.render import Column, Form, FormOption, age_column, fields, show_one
from borgish.cli.session import IfGeneration, MaxAffected, noun, session_of
from borgish.resources import Resources, show_bytes, show_cpu, show_devices
from borgish.text import age, day_and_time, local_times, plural, safe, span
from borgish.vocabulary import MachineState, TaintEffect
from borgish.wire.api import (
    Accepted,
    CordonRequest,
    DrainView,
    MachineList,
    MachineView,
    RemoveRequest,
    TaintRequest,
    TaintView,
    UntaintRequest,
)

if TYPE_CHECKING:
    from borgish.cli.lookup import Params
    from borgish.client import Client

app = noun("The machines of the cell.")

MachineName = Annotated[
    str,
    typer.Argument(
        metavar="MACHINE", help="Its name, or a beginning that is unique.", autocompletion=complete.machines
    ),
]
MACHINE_SORTS = ("name", "trouble", "tasks", "cpu", "ram")
_STYLES = {"up": "green", "down": "red", "revoked": "red"} | dict.fromkeys(
    ("draining", "drained", "cordoned", "quarantined"), "yellow"
)


def _of_capacity(machine: MachineView, *, cpu: bool) -> str:
    """Return what is committed of what there is: ``1.5/4``."""
    if cpu:
        return f"{show_cpu(machine.committed.cpu_millis)}/{show_cpu(machine.capacity.cpu_millis)}"
    return f"{show_bytes(machine.committed.ram_bytes)}/{show_bytes(machine.capacity.ram_bytes)}"


def _used(machine: MachineView, *, cpu: bool) -> str:
    if machine.usage is None:
        return ""
    return show_cpu(machine.usage.cpu_millis) if cpu else show_bytes(machine.usage.ram_bytes)


def _taint(taint: TaintView) -> str:
    """Return ``dedicated=ml:refuse``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _style(machine: MachineView) -> str:
    return _STYLES.get(machine.state, "") if machine.answering or machine.state == "down" else "yellow"


def _trouble(machine: MachineView) -> str:
    return "; ".join([*([machine.reason] if machine.reason else []), *machine.conditions])


MACHINE_COLUMNS: tuple[Column[MachineView], ...] = (
    Column("NAME", lambda machine: machine.name),
    Column("STATE", lambda machine: machine.state, _style),
    Column("TASKS", lambda machine: str(machine.tasks), right=True),
    Column("CPU", lambda machine: _of_capacity(machine, cpu=True), right=True),
    Column("RAM", lambda machine: _of_capacity(machine, cpu=False), right=True),
    Column("USED", lambda machine: _used(machine, cpu=True) or "-", right=True, wide=True, restless=True),
    Column(
        "USED RAM", lambda machine: _used(machine, cpu=False) or "-", right=True, wide=True, restless=True
    ),
    Column("RUNTIMES", lambda machine: ",".join(machine.runtimes)),
    Column("ADDRESS", lambda machine: machine.address, wide=True),
    age_column("AGE", lambda machine: machine.joined_at),
    Column("TAINTS", lambda machine: ",".join(map(_taint, machine.taints)) or "-", rare=True),
    Column("REASON", _trouble),
)


@app.command("list")
def list_(
    context: typer.Context,
    label: Annotated[
        str,
        typer.Option(
            "--label", "-l", metavar="SELECTOR", help="Only with these attributes: rack=r1, arch!=arm64, gpu."
        ),
    ] = "",
    state: Annotated[
        MachineState | None, typer.Option("--state", help="Only machines in this state.")
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="KEY",
            help="By name, trouble, tasks, or the share of cpu or ram that tasks have; -KEY is the reverse.",
            autocompletion=complete.among(*MACHINE_SORTS),
        ),
    ] = "",
    columns: Annotated[str, columns_option(lambda: MACHINE_COLUMNS)] = "",
    limit: LimitOption = None,
    watch: WatchOption = False,
    cells: CellsOption = None,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List the machines. As in: borgctl machine list -l rack=r1 --sort trouble"""
    params: Params = {"label": label, "state": state, "sort": sort}
    is_filtered = bool(label or state)
    none = "no such machines" if is_filtered else "no machine had joined" if at else "no machine has joined"

    def listing(client: "Client") -> Listing[MachineView]:
        return Listing(
            items=paged(client, "machine", params, MachineList, limit),
            columns=MACHINE_COLUMNS,
            form=output,
            name=lambda machine: machine.name,
            none=none,
            chosen=columns,
            limit=limit,
            noun="machine",
            sorted_by=sort,
            client=client,
            kinds="event",
        )

    show_asked(context, listing, cells, at, output, watch=watch)


@app.command()
def show(
    context: typer.Context, machine: MachineName, at: AtOption = "", output: FormOption = Form.TABLE
) -> None:
    """Show one machine. As in: borgctl machine show m1"""
    client = client_at(context, at, output)
    view = client.get(_path(client, machine), None, MachineView)
    show_one(view, output, view.name, lambda it, _: machine_in_full(it))


@app.command()
def cordon(
    context: typer.Context,
    machine: MachineName,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown with the machine.")] = "",
    if_generation: IfGeneration = None,
) -> None:
    """Place nothing more on a machine; what runs there goes on."""
    _change(context, machine, "cordon", CordonRequest(reason), if_generation)


@app.command()
def uncordon(context: typer.Context, machine: MachineName, if_generation: IfGeneration = None) -> None:
    """Place tasks on a machine again."""
    _change(context, machine, "uncordon", None, if_generation)


@app.command()
def taint(
    context: typer.Context,
    machine: MachineName,
    mark: Annotated[
        str, typer.Argument(metavar="KEY[=VALUE]", help="KEY or KEY=VALUE, like maintenance or dedicated=ml.")
    ],
    effect: Annotated[
        TaintEffect, typer.Option("--effect", help="What it does to tasks that do not tolerate it.")
    ] = TaintEffect.REFUSE,
    max_affected: MaxAffected = None,
    if_generation: IfGeneration = None,
) -> None:
    """Mark a machine: tasks that do not tolerate the mark avoid it, are refused, or have to leave."""
    key, _, value = mark.partition("=")
    _change(context, machine, "taint", TaintRequest(key, value, effect, max_affected), if_generation)


@app.command()
def untaint(
    context: typer.Context,
    machine: MachineName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the taint.")],
    if_generation: IfGeneration = None,
) -> None:
    """Take a mark off a machine."""
    _change(context, machine, "untaint", UntaintRequest(key), if_generation)


@app.command()
def remove(
    context: typer.Context,
    machine: Annotated[
        str, typer.Argument(metavar="MACHINE", help="Its name, in full.", autocompletion=complete.machines)
    ],
    max_affected: MaxAffected = None,
    if_generation: IfGeneration = None,
    yes: YesOption = False,
) -> None:
    """Take a machine out of the cell: one that is down, or that holds nothing.

    It comes back by `machine invite` alone.
    """
    from borgish.cli.commands.job import say_accepted
    from borgish.client import quoted

    client = session_of(context).client()
    path, body = quoted("machines", machine, "remove"), RemoveRequest(max_affected)
    confirm(f"This takes machine {safe(machine)} out of the cell: it comes back by an invitation.", yes=yes)
    say_accepted(client.post(path, body, Accepted, expected=if_generation))


def machine_in_full(machine: MachineView) -> str:
    """Return one machine as people read it."""
    heard = machine.heard_seconds_ago
    used = f"{_used(machine, cpu=True)} cpu, {_used(machine, cpu=False)} ram"
    never = "" if machine.as_of else "not since this master started"
    return fields(
        [
            ("machine", machine.name),
            ("state", machine.state),
            ("reason", local_times(machine.reason)),
            *(("drain", _drain(each)) for each in machine.drains),
            *(("stays", line) for line in machine.staying),
            ("ending", plural(machine.ending, "program") if machine.ending else ""),
            ("conditions", "; ".join(machine.conditions)),
            ("address", machine.address),
            ("capacity", _amounts(machine.capacity)),
            ("committed", _amounts(machine.committed)),
            ("used", used if machine.usage else ""),
            ("tasks", f"{machine.tasks}{f', and {machine.incoming} to take over' * bool(machine.incoming)}"),
            ("runtimes", ", ".join(machine.runtimes)),
            *(("confined", f"{name}: {text}") for name, text in sorted(machine.confinement.items())),
            ("taints", ", ".join(map(_taint, machine.taints))),
            ("attributes", ", ".join(f"{key}={value}" for key, value in sorted(machine.attributes.items()))),
            ("heard", f"{span(heard)} ago" if heard is not None else never),
            ("joined", f"{age(machine.joined_at)} ago"),
            ("generation", str(machine.generation)),
            ("orphans", ", ".join(machine.orphans)),
        ]
    )


def _drain(drain: DrainView) -> str:
    """Return why a machine is to be empty, and until when it waits for what runs to completion."""
    planned = "" if drain.begun else ", not begun yet"
    deadline = f"; what runs to completion may finish until {day_and_time(drain.deadline)}"
    return f"{drain.text}; asked {age(drain.at)} ago{planned}{deadline}"


def _amounts(amounts: Resources) -> str:
    named = "".join(f", {amount} {name}" for name, amount in sorted(amounts.named.items()))
    devices = "".join(f", {show_devices(millis)} {kind}" for kind, millis in sorted(amounts.devices.items()))
    disk = f", {show_bytes(amounts.disk_bytes)} disk" if amounts.disk_bytes else ""
    return f"{show_cpu(amounts.cpu_millis)} cpu, {show_bytes(amounts.ram_bytes)} ram{disk}{devices}{named}"


def _change(context: typer.Context, machine: str, verb: str, body: object, expected: int | None) -> None:
    from borgish.cli.commands.job import say_accepted

    client = session_of(context).client()
    say_accepted(client.post(f"{_path(client, machine)}/{verb}", body, Accepted, expected=expected))


def _path(client: "Client", machine: str) -> str:
    from borgish.cli.lookup import find_machine
    from borgish.client import quoted

    return quoted("machines", find_machine(client, machine))
