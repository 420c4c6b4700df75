"""How tasks read: the columns of a list, and one task in full."""

from borgish.cli.missing import last_exit
from borgish.cli.render import fields
from borgish.cli.table import Column
from borgish.cli.text import plural, state_text
from borgish.resources import DEVICE_MILLIS, show_bytes, show_cpu, show_devices
from borgish.text import age
from borgish.vocabulary import Outcome, Phase, State
from borgish.wire.api import ProgramView, TaskView

_PHASE_STYLES = {
    Phase.HEALTHY: "green",
    Phase.UP: "green",
    Phase.UNHEALTHY: "red",
    Phase.CRASH_LOOPING: "red",
}


def task_style(task: TaskView) -> str:
    """Return the colour of a task's state."""
    if task.state is State.RUNNING:
        return _PHASE_STYLES.get(task.phase or Phase.ASSIGNED, "yellow")
    if task.state is State.PENDING:
        return "yellow"
    return "red" if task.outcome in (Outcome.FAILED, Outcome.LOST) else "dim"


def machine_now(task: TaskView) -> str:
    """Return where a task is; "" for one that is nowhere, whose machine is the last it was on."""
    return task.machine or "" if task.state is State.RUNNING else ""


def show_ports(task: TaskView) -> str:
    """Return ``http=20001,admin=20002``."""
    return ",".join(f"{name}={port}" for name, port in task.ports.items())


def devices_text(task: TaskView) -> str:
    """Return ``gpu:0,gpu:1``, with what it has of them where that is a part: ``gpu:0 (500m)``."""
    parts = [show_devices(m) for m in task.resources.devices.values() if m % DEVICE_MILLIS]
    return ",".join(task.devices) + (f" ({', '.join(parts)})" if parts and task.devices else "")


def program_text(program: ProgramView) -> str:
    """Return ``proxy: up, pid 4711, 2 restarts``."""
    parts = [program.phase, f"pid {program.pid}" * bool(program.pid)]
    parts += [plural(program.restarts, "restart") * bool(program.restarts), program.reason]
    return f"{program.name}: {', '.join(filter(None, parts))}"


TASK_COLUMNS: tuple[Column[TaskView], ...] = (
    Column("NAME", lambda task: task.name),
    Column("STATE", lambda task: state_text(task.state, task.outcome), task_style),
    Column("PHASE", lambda task: task.phase or "-", task_style),
    Column("MACHINE", lambda task: machine_now(task) or "-"),
    Column("PORTS", lambda task: show_ports(task) or "-"),
    Column("RESTARTS", lambda task: str(task.restarts), right=True, wide=True),
    Column("PID", lambda task: str(task.pid or "-"), right=True, wide=True),
    Column("ATTEMPT", lambda task: str(task.attempt), right=True, wide=True),
    Column("PRIORITY", lambda task: str(task.priority), right=True, wide=True),
    Column("CPU", lambda task: _used(task, cpu=True), right=True, wide=True),
    Column("RAM", lambda task: _used(task, cpu=False), right=True, wide=True),
    Column("EXIT", lambda task: last_exit(task) or "-", wide=True),
    Column("AGE", lambda task: age(task.since), right=True),
    Column("REASON", lambda task: task.reason),
)


def _used(task: TaskView, *, cpu: bool) -> str:
    """Return usage and limit: ``12m/500m``."""
    if cpu:
        used = show_cpu(task.usage.cpu_millis) if task.usage else "-"
        return f"{used}/{show_cpu(task.resources.cpu_millis)}"
    used = show_bytes(task.usage.ram_bytes) if task.usage else "-"
    return f"{used}/{show_bytes(task.resources.ram_bytes)}"


def task_in_full(task: TaskView, *, wide: bool) -> str:
    """Return one task as people read it."""
    del wide  # it is always shown in full
    return fields(
        [
            ("task", task.name),
            ("state", f"{state_text(task.state, task.outcome)} {task.phase or ''}".strip()),
            ("reason", task.reason),
            ("since", f"{age(task.since)} ago"),
            ("machine", machine_now(task)),
            ("last machine", "" if machine_now(task) else task.machine or ""),
            ("alloc", task.alloc),
            ("attempt", str(task.attempt) if task.attempt else ""),
            ("pid", str(task.pid) if task.pid else ""),
            ("programs", "; ".join(map(program_text, task.programs))),
            ("ports", show_ports(task)),
            ("devices", devices_text(task)),
            ("started", f"{age(task.started_at)} ago" if task.started_at else ""),
            ("restarts", str(task.restarts)),
            ("last exit", last_exit(task)),
            ("priority", str(task.priority)),
            ("cpu", f"{_used(task, cpu=True)} used/limit"),
            ("ram", f"{_used(task, cpu=False)} used/limit"),
        ]
    )
