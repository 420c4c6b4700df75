"""Whether who asks may have what a command asks for, beyond what its route lets through. Pure.

The routes know roles and whose job is named in a path. Here is what depends on the cell: in which bands
somebody may have tasks, and whether a job that starts by the command belongs to whom it should. What stops
or shrinks is allowed to whoever owns it: it was admitted once.
"""

from collections.abc import Container, Iterable, Iterator

from borgish.cell.access.model import (
    BAND_GRANT,
    DEFAULT_BANDS,
    GRANTABLE_BANDS,
    Access,
    Principal,
    Role,
    bands_of,
    grants_of,
)
from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    RestartTasks,
    ResumeCron,
    ResumeUpdate,
    RunApp,
    RunCron,
    ScaleJob,
    SetCron,
    SubmitJob,
    UndoApp,
    UndoUpdate,
)
from borgish.cell.crons.model import Cron
from borgish.cell.model import Cell
from borgish.errors import Forbidden
from borgish.spec.app import Document, to_completion
from borgish.spec.cron import CronSpec
from borgish.spec.job import JobSpec
from borgish.spec.privileges import privileges_of
from borgish.vocabulary import Band


def authorize(cell: Cell, command: Command, asker: Principal) -> None:
    """Raise Forbidden for what would start tasks that the asker may not have."""
    if asker.role == Role.ADMIN and not asker.bands:
        return
    for spec in _started(cell, command):
        authorize_spec(cell, spec, asker)


def authorize_commands(spec: JobSpec) -> None:
    """Raise Forbidden where a job lets nobody run commands beside its tasks: neither its owner nor an admin,
    who can have the field changed, which is in the journal then."""
    if not spec.allow_exec:
        raise Forbidden(
            f"{spec.key} allows no commands beside its tasks, and no copying",
            "put 'allow_exec: true' into its job file and submit it again: no task restarts",
        )


def authorize_spec(cell: Cell, spec: JobSpec, asker: Principal) -> None:
    """Raise Forbidden unless the asker may have a job: its owner, its band, and what it asks for beyond the
    defaults."""
    if asker.role != Role.ADMIN and not asker.owns(spec.user):
        raise Forbidden(
            f"{asker.name} may not act on the jobs of {spec.user}", not_owner_hint(cell.access, spec.user)
        )
    band = cell.rules.bands.of(spec.priority)
    if band not in bands_of(cell.access, asker, spec.user):
        raise _beyond_bands(asker, band)
    if asker.role != Role.ADMIN:
        granted = grants_of(cell.access, asker, spec.user)
        if missing := [each for each in privileges_of(spec) if each not in granted]:
            raise Forbidden(
                f"{spec.key} asks for {' and '.join(missing)}, which {asker.name} was not granted",
                f"leave it out, or ask an admin for `borgctl user grant {asker.name} {' '.join(missing)}`",
            )


def crons_beyond(cell: Cell, owner: str, lost: Container[str]) -> Iterator[Cron]:
    """Yield the crons whose runs need a grant that a user or a group loses, unless the cron's owner or
    whoever set it has that grant as well. Paused ones are left out.

    Nobody asks for a run that begins on time, so no grants can be checked then. Its cron is paused with the
    loss instead, where people see it, until somebody who may resumes it.
    """
    access = cell.access
    for cron in cell.crons.values():
        others = {cron.spec.user, cron.by} - {owner}
        if cron.paused or owner not in (cron.spec.user, cron.by):
            continue
        kept = {grant for other in others for grant in access.grants_of(other)}
        needed = {grant for spec in _run_by(cell, cron.spec) for grant in _grants_needed(cell, spec)}
        if any(grant in lost and grant not in kept for grant in needed):
            yield cron


def _grants_needed(cell: Cell, spec: JobSpec) -> Iterator[str]:
    band = cell.rules.bands.of(spec.priority)
    if band not in DEFAULT_BANDS:
        yield f"{BAND_GRANT}{band}"
    yield from privileges_of(spec)


def not_owner_hint(access: Access, owner: str) -> str:
    """Return what somebody can do who is not the owner."""
    if owner in access.groups:
        return f"ask an admin to put you into the group: `borgctl group members {owner} --add USER`"
    return "ask that user, or use an admin's token"


def _beyond_bands(asker: Principal, band: Band) -> Forbidden:
    if band not in GRANTABLE_BANDS:
        return Forbidden(
            f"{asker.name} may not have tasks in the band {band}: it preempts everybody, and is for admins",
            "choose a lower `priority`, like batch",
        )
    if asker.bands and band not in asker.bands:
        return Forbidden(
            f"this token of {asker.name} is for {' and '.join(asker.bands)} alone, and not for {band}",
            "use another token, or choose another `priority`",
        )
    return Forbidden(
        f"{asker.name} may not have tasks in the band {band}",
        f"choose a lower `priority`, or ask an admin for `borgctl user grant {asker.name} {band}`",
    )


def _started(cell: Cell, command: Command) -> Iterator[JobSpec]:
    """Yield what may start, or start anew, by a command."""
    match command:
        case SubmitJob(spec):
            yield spec
        case SetCron(spec):
            yield from _run_by(cell, spec)
        case ScaleJob(name, tasks):
            yield from _specs_of(cell, name, grown_to=tasks)
        case RestartTasks(name) | ResumeUpdate(name):
            yield from _specs_of(cell, name)
        case UndoUpdate(name) if job := cell.jobs.get(name):
            yield from (each.spec for each in job.earlier.values())
        case RunCron(name) | ResumeCron(name) if cron := cell.crons.get(name):
            yield from _run_by(cell, cron.spec)
        case ApplyApp(_, documents, crons=crons):
            yield from _specs_in(documents, crons)
        case UndoApp(name) if app := cell.apps.get(name):
            for version in app.earlier.values():
                yield from _specs_in(version.documents, version.crons)
        case RunApp(name) if app := cell.apps.get(name):
            yield from _specs_in(app.present.documents, ())


def _run_by(cell: Cell, cron: CronSpec) -> Iterator[JobSpec]:
    """Yield what a run of a cron submits: its job, or copies of the stages of its application, whose owner
    ``job`` names."""
    yield cron.job
    if cron.app and (app := cell.apps.get(cron.app_key)):
        yield from (stage.spec for stage in to_completion(app.present.documents))


def _specs_in(documents: Iterable[Document], crons: Iterable[CronSpec]) -> Iterator[JobSpec]:
    yield from (document.spec for document in documents)
    yield from (cron.job for cron in crons)


def _specs_of(cell: Cell, key: str, grown_to: int | None = None) -> Iterator[JobSpec]:
    job = cell.jobs.get(key)
    if job is not None and (grown_to is None or grown_to > len(job.tasks)):
        yield job.spec
