"""How jobs read: the columns of a list, and one job in full."""

from borgish.cli.render import fields
from borgish.cli.table import Column, draw
from borgish.cli.text import outcomes, plural, state_text
from borgish.resources import show_bytes, show_cpu
from borgish.spec.job import Health, JobSpec
from borgish.text import age, safe
from borgish.vocabulary import Phase, State
from borgish.wire.api import JobDetail, JobView, TaskView

_TASKS_SHOWN_MAX = 20
_STYLES = {State.PENDING: "yellow", State.DEAD: "dim"}


def job_style(job: JobView) -> str:
    """Return the colour of a job: red for trouble, green for all is well."""
    well = job.running if job.up is None else job.up
    if job.failed or (job.state is State.RUNNING and well + job.dead < job.tasks and not job.pending):
        return "red" if job.failed else "yellow"
    return _STYLES.get(job.state, "yellow" if job.pending else "green")


def job_state(job: JobView) -> str:
    """Return the state, of a dead job with its outcome, or with counts where there are several."""
    counts = outcomes(job.finished, job.failed, job.killed)
    if job.outcome and len(counts) > 1:
        return f"{job.state} ({', '.join(counts)})"
    return state_text(job.state, job.outcome)


JOB_COLUMNS: tuple[Column[JobView], ...] = (
    Column("NAME", lambda job: job.name),
    Column("STATE", job_state, job_style),
    Column("UP", lambda job: f"{job.up}/{job.tasks}", right=True),
    Column("PENDING", lambda job: str(job.pending), right=True),
    Column("FINISHED", lambda job: str(job.finished), right=True),
    Column("FAILED", lambda job: str(job.failed), right=True),
    Column("DEAD", lambda job: str(job.dead), right=True, wide=True),
    Column("BAND", lambda job: job.band),
    Column("PRIORITY", lambda job: str(job.priority), right=True, wide=True),
    Column("APPCLASS", lambda job: job.appclass, wide=True),
    Column("KIND", lambda job: "service" if job.service else "to completion", wide=True),
    Column("GENERATION", lambda job: str(job.generation), right=True, wide=True),
    Column("BY", lambda job: job.submitted_by, wide=True),
    Column("AGE", lambda job: age(job.submitted_at), right=True),
    Column("REASON", lambda job: job.reason),
)

_RUNNING: Column[JobView] = Column("RUNNING", lambda job: f"{job.running}/{job.tasks}", right=True)
PAST_JOB_COLUMNS = tuple(_RUNNING if column.title == "UP" else column for column in JOB_COLUMNS)
"""What was up is not known of the past."""


def job_in_full(detail: JobDetail, tasks: list[TaskView], *, wide: bool) -> str:
    """Return one job as people read it: what it is, what it runs, what is in its way, its tasks."""
    from borgish.cli.missing import refusal_lines
    from borgish.cli.task_view import TASK_COLUMNS

    parts = [_what_it_is(detail), _what_it_runs(detail.spec)]
    if detail.refusals:
        parts.append("\n".join(line for refusal in detail.refusals for line in refusal_lines(refusal)) + "\n")
    columns = [column for column in TASK_COLUMNS if wide or not column.wide]
    shown = tasks if wide else tasks[:_TASKS_SHOWN_MAX]
    if shown:
        parts.append(draw(shown, columns) + _more(detail.job, len(tasks) - len(shown)))
    return "\n".join(parts)


def _more(job: JobView, count: int) -> str:
    return f"and {plural(count, 'task')} more: borgctl task list {safe(job.name)}\n" if count else ""


def _what_it_is(detail: JobDetail) -> str:
    job = detail.job
    return fields(
        [
            ("job", job.name),
            ("state", f"{job_state(job)}, generation {job.generation}"),
            ("tasks", _counts(detail)),
            ("reason", job.reason),
            ("priority", f"{job.priority} ({job.band}), {job.appclass}"),
            ("submitted", f"{age(job.submitted_at)} ago by {job.submitted_by}"),
        ]
    )


def _counts(detail: JobDetail) -> str:
    job = detail.job
    not_up = {"not healthy yet" if phase is Phase.UP else phase: n for phase, n in detail.not_up.items()}
    running = job.running if job.up is None else 0  # else they are told by their phases
    live = {"up": job.up, **not_up, "pending": job.pending, "running": running}
    counts = [f"{count} {word}" for word, count in live.items() if count]
    return f"{job.tasks}: {', '.join([*counts, *outcomes(job.finished, job.failed, job.killed)])}"


def _what_it_runs(spec: JobSpec) -> str:
    import shlex

    named = "".join(f", {amount} {name}" for name, amount in spec.resources.named.items())
    return fields(
        [
            ("runs", shlex.join(spec.run)),
            ("with", f"{spec.runtime}, image {spec.image}" if spec.image else str(spec.runtime)),
            (
                "needs",
                f"{show_cpu(spec.resources.cpu_millis)} cpu, {show_bytes(spec.resources.ram_bytes)}{named}",
            ),
            ("ports", ", ".join(spec.ports)),
            ("health", _probe(spec.health) if spec.health else ""),
            ("restart", spec.restart.policy),
            ("only where", " and ".join(map(str, spec.constraints))),
            ("labels", ", ".join(f"{key}={value}" for key, value in spec.labels.items())),
        ]
    )


def _probe(health: Health) -> str:
    import shlex

    what = f"http {health.http}" if health.http else "tcp" if health.tcp else shlex.join(health.command)
    where = f" on {health.port}" if health.port else ""
    return f"{what}{where}, each {health.interval_seconds:g}s"
