"""Secrets of users and groups: who uses one, and which machines were given it. Pure.

What a secret is worth never comes here: it is sealed before, and opened by the link for machines on which
tasks that use it run (Kubernetes' Secret, Swarm's secret). Each version knows which machines were given it,
so that whoever revokes a machine is told what to set anew.
"""

from collections.abc import Iterable, Iterator

import msgspec

from borgish.cell.access.commands import (
    RemoveSecret,
    SetSecret,
)
from borgish.cell.access.events import SecretRemoved, SecretSet
from borgish.cell.access.model import Secret, secret_key
from borgish.cell.commands import Decision
from borgish.cell.model import Cell, Job
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound
from borgish.resources import show_bytes
from borgish.spec.job import JobSpec
from borgish.vocabulary import State

SECRET_BYTES_MAX = 32 * 1024
SECRETS_OF_OWNER_MAX = 1000


def set_secret(cell: Cell, _o: Observed, command: SetSecret, actor: str, now: Now) -> Decision:
    """Give a secret a value. Raises Invalid for one too long, and Conflict for too many."""
    there = cell.access.secrets
    key, size_bytes = secret_key(command.owner, command.name), command.size_bytes
    before = there.get(key)
    if not 0 < size_bytes <= SECRET_BYTES_MAX:
        fault = "is empty" if not size_bytes else f"has {show_bytes(size_bytes)}"
        raise Invalid(f"the value of {key} {fault}", f"a secret has 1 byte to {show_bytes(SECRET_BYTES_MAX)}")
    if before is None and sum(each.owner == command.owner for each in there.values()) >= SECRETS_OF_OWNER_MAX:
        raise Conflict(
            f"{command.owner} has {SECRETS_OF_OWNER_MAX} secrets, and may have no more",
            f"remove one: `borgctl secret list --user {command.owner}` shows them",
        )
    if before is not None and before.sealed == command.sealed:
        return Decision((), key, f"the secret {key} has this value already")
    using = [job for job in live_users(cell, key) if job.running]
    event = SecretSet(Secret(command.owner, command.name, command.sealed, size_bytes, at=now.wall, by=actor))
    text = f"the secret {key} is set" if before is None else f"the secret {key} has another value"
    return Decision((event,), key, text, tuple(_restart_notes(using, command.name)))


def _restart_notes(using: Iterable[Job], name: str) -> Iterator[str]:
    for job in using:
        if name in job.spec.secret_env.values():
            restart = f"`borgctl job restart {job.key}`"
            yield f"{job.key} has it in its environment, where it is as it was until {restart}"


def remove_secret(cell: Cell, _o: Observed, command: RemoveSecret, _actor: str, _now: Now) -> Decision:
    """Forget a secret. Raises NotFound, and Conflict while something uses it."""
    key = secret_key(command.owner, command.name)
    if key not in cell.access.secrets:
        raise NotFound(
            f"there is no secret {key}", f"`borgctl secret list --user {command.owner}` shows those there are"
        )
    using = [job.key for job in live_users(cell, key)]
    using += [f"the cron {cron.key}" for cron in cell.crons.values() if uses(cron.spec.job, key)]
    if using:
        more = f" and {len(using) - 1} more" if len(using) > 1 else ""
        raise Conflict(
            f"the secret {key} is used by {using[0]}{more}", "end what uses it, or change it, first"
        )
    return Decision((SecretRemoved(key),), key, f"the secret {key} is gone")


def uses(spec: JobSpec, key: str) -> bool:
    """Return whether a job's tasks get the secret of this key."""
    return any(secret_key(spec.user, name) == key for name in spec.secrets)


def live_users(cell: Cell, key: str) -> Iterator[Job]:
    """Yield the jobs that are not dead and use a secret."""
    for job in cell.jobs.values():
        if job.state is not State.DEAD and uses(job.spec, key):
            yield job


def live_users_by_secret(cell: Cell) -> dict[str, list[str]]:
    """Return the keys of the same jobs by the keys of secrets, in one pass over all jobs."""
    found: dict[str, list[str]] = {}
    for job in cell.jobs.values():
        if job.state is not State.DEAD:
            for name in job.spec.secrets:
                found.setdefault(secret_key(job.spec.user, name), []).append(job.key)
    return found


def missing_secrets(cell: Cell, spec: JobSpec) -> tuple[str, ...]:
    """Return the keys of the secrets that a job uses and that are not there."""
    keys = (secret_key(spec.user, name) for name in spec.secrets)
    return tuple(key for key in keys if key not in cell.access.secrets)


def held_by(cell: Cell, machine: str) -> list[str]:
    """Return the keys of the secrets whose value of now a machine was given, in order."""
    return sorted(key for key, secret in cell.access.secrets.items() if machine in secret.machines)


# -- Applied ------------------------------------------------------------------------------------------------


def apply_set(cell: Cell, secret: Secret, position: int) -> None:
    """Let a secret have a value, which the machines of those that use it are to get."""
    key, machines = secret.key, set()
    for job in live_users(cell, key):
        machines |= machines_of(cell, job)
    given = tuple(sorted(machines))
    cell.access.secrets[key] = msgspec.structs.replace(secret, version=position, machines=given)
    cell.touched.placements |= machines


def machines_of(cell: Cell, job: Job) -> set[str]:
    """Return the machines on which tasks of a job run, or are about to."""
    running = {task.machine for task in job.tasks if task.state is State.RUNNING}
    return running | {each.machine for each in cell.handovers.get(job.key, {}).values() if each.attempt}


def note_given(cell: Cell, spec: JobSpec, machines: Iterable[str]) -> None:
    """Note that machines are given what tasks of this job get."""
    there = cell.access.secrets
    for name in spec.secrets:
        key = secret_key(spec.user, name)
        secret = there.get(key)
        if secret is not None and (new := set(machines).difference(secret.machines)):
            given = tuple(sorted({*secret.machines, *new}))
            there[key] = msgspec.structs.replace(secret, machines=given)


def note_revoked(cell: Cell, machine: str) -> None:
    """Note that a machine was revoked, with the secrets that it was given: until they are set anew they may
    be known to whoever has it, also where it is removed or let in again."""
    there = cell.access.secrets
    for key in held_by(cell, machine):
        revoked = tuple(sorted({*there[key].revoked_machines, machine}))
        there[key] = msgspec.structs.replace(there[key], revoked_machines=revoked)
