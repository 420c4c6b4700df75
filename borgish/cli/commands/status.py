"""``borgctl status``: the cell at one glance."""

import sys
from typing import TYPE_CHECKING

import typer

from borgish.cli.at_option import AtOption, client_at
from borgish.cli.render import Column, Form, FormOption, draw, fields, outcomes, show_one
from borgish.cli.screen import can_show, print_err
from borgish.cli.session import DirOption, Session, session_of, single
from borgish.errors import BorgishError, Unreachable
from borgish.resources import show_bytes, show_cpu
from borgish.text import age, local_times, plural, span
from borgish.wire.api import BandUse, HealthView, StatusView
from borgish.wire.api_certificates import CertificatesView

if TYPE_CHECKING:
    from borgish.client import Client

app = single()

_BAR_WIDTH = 20


@app.command()
def status(
    context: typer.Context,
    folder: DirOption = None,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Show the cell at one glance. Exit code 4 when its master cannot be reached."""
    session = session_of(context)
    session.use(folder)
    try:
        client = client_at(context, at, output)
        view = client.get("/v1/status", None, StatusView)
    except Unreachable:
        _print_daemons(session)
        raise
    masters = "" if view.as_of or output is not Form.TABLE else masters_words(client)
    show_one(view, output, view.cell, lambda it, _: in_full(it, client.url, _local_pid(session), masters))


def masters_words(client: "Client") -> str:
    """Return how each of several masters is; "" where there is one."""
    each = client.each_master()
    return "; ".join(_master_words(one) for one in each) if len(each) > 1 else ""


def _master_words(one: "Client") -> str:
    try:
        view = one.get("/v1/health", None, HealthView)
    except BorgishError:
        return f"{one.url} does not answer"
    finally:
        one.close()
    if view.role == "leader":
        return f"{one.url} leads" + (f", with trouble: {view.trouble}" if view.trouble else "")
    if view.trouble or view.behind_seconds is None:
        return f"{one.url} stands by, without a copy: {view.trouble or 'it has just started'}"
    return f"{one.url} stands by at position {view.position}"


def in_full(view: StatusView, url: str, pid: int, masters: str = "") -> str:
    """Return the cell as people read it."""
    where = f"borgmaster {view.version}, up {age(view.started_at)}" + (f", pid {pid}" if pid else "")
    kept, now = view.last_checkpoint, view.as_of is None
    text = fields(
        [
            ("cell", view.cell),
            ("master", f"{url}, {where}" if now else ""),
            ("masters", masters),
            ("refusing", "; ".join(view.refusing)),
            *(("busy", line) for line in view.busy),
            (
                "journal",
                f"{view.store}, position {view.position}, timeline {view.timeline}, epoch {view.epoch}",
            ),
            ("checkpoint", f"position {kept.position}, {age(kept.at)} ago" if kept else "none yet" * now),
            ("machines", f"{view.machines_up} of {view.machines} up{_silent(view)}{_draining(view)}"),
            *(("drained", line) for line in view.draining),
            ("certificates", ", ".join([*map(_certificates, view.certificates), *_uncertified(view)])),
            ("jobs", str(view.jobs)),
            ("tasks", _task_counts(view)),
            (
                "changes",
                f"{plural(view.to_change, 'task')} still to be changed or stopped" if view.to_change else "",
            ),
            *(("paused", reason) for reason in view.rollbacks_paused),
            ("freeze", local_times(view.frozen)),
            (
                "capacity",
                f"{show_cpu(view.capacity.cpu_millis)} cpu, {show_bytes(view.capacity.ram_bytes)} ram",
            ),
        ]
    )
    return text + ("\n" + draw(view.bands, _band_columns(view)) if view.bands else "")


def _certificates(view: CertificatesView) -> str:
    whose = view.role if not view.machine else f"{plural(view.count, 'machine')}, of which {view.machine}"
    left = f"for {span(view.seconds_left)}" if view.seconds_left > 0 else "no more"
    near = f" ({view.near} near the end and not renewed)" if view.near else ""
    return f"{whose} {left}{near}"


def _uncertified(view: StatusView) -> list[str]:
    count = view.machines_uncertified
    return [f"{plural(count, 'machine')} without: {', '.join(view.uncertified)}"] if count else []


def _silent(view: StatusView) -> str:
    return f", {view.machines_silent} of them not answering" if view.machines_silent else ""


def _draining(view: StatusView) -> str:
    return f", {view.machines_draining} drained" if view.machines_draining else ""


def _task_counts(view: StatusView) -> str:
    up = "" if view.up is None else f" ({view.up} up)"
    ended = ", ".join(outcomes(view.finished, view.failed, view.killed))
    dead = f"{view.dead} dead" + (f" ({ended})" if ended else "")
    after = f" ({view.waiting} after other jobs)" if view.waiting else ""
    counts = f"{view.pending} pending{after}, {view.running} running{up}, {dead}"
    return f"{view.tasks}: {counts}" if view.tasks else "0"


def _band_columns(view: StatusView) -> tuple[Column[BandUse], ...]:
    cpu, ram = view.capacity.cpu_millis, view.capacity.ram_bytes
    return (
        Column("BAND", lambda band: band.band),
        Column("TASKS", lambda band: str(band.tasks), right=True),
        Column("CPU", lambda band: show_cpu(band.cpu_millis), right=True),
        Column("", lambda band: _bar(band.cpu_millis, cpu)),
        Column("RAM", lambda band: show_bytes(band.ram_bytes), right=True),
        Column("", lambda band: _bar(band.ram_bytes, ram)),
    )


def _bar(part: int, whole: int) -> str:
    filled = min(_BAR_WIDTH, round(_BAR_WIDTH * part / whole)) if whole else 0
    full, free = ("█", "·") if can_show("█·", sys.stdout) else ("#", ".")
    return full * filled + free * (_BAR_WIDTH - filled)


def _local_pid(session: Session) -> int:
    from borgish.cli.daemons import running_pid
    from borgish.cli.local_cell import exists, master_of

    return (
        running_pid(master_of(session.cell_folder)) if not session.url and exists(session.cell_folder) else 0
    )


def _print_daemons(session: Session) -> None:
    """Print which daemons of the local cell run, when the master does not answer."""
    from borgish.cli.daemons import running_pid
    from borgish.cli.local_cell import borglets_of, exists, initialised, master_of

    folder = session.cell_folder
    if session.url or not exists(folder) or initialised(folder):
        return
    every = [master_of(folder), *borglets_of(folder)]
    running = [f"{daemon.name} (pid {pid})" for daemon in every if (pid := running_pid(daemon))]
    shown = ", ".join(running) or "none"
    print_err(f"cell in {folder}: {shown} of {plural(len(every), 'daemon')} running")
