"""Who set which field of a job, and what follows when a file of its application is applied: Kubernetes'
server-side apply, done simply.

A file owns the fields that it names. What somebody else set since, by ``job scale``, ``job edit`` or another
file, is theirs: a file that does not name it leaves it as it is, and one that does is refused, unless it says
the same or takes it over. A field that a file no longer names goes back to its default. How many tasks there
are is not given back: a file that does not say so leaves it to people and to what scales by load.

Of a job that no application has applied yet, what is not noted here is of who submitted it.
"""

from collections.abc import Collection, Iterator

import msgspec

from borgish.cell.model import Job, Owner
from borgish.resources import Resources
from borgish.spec.app import PART_BY_PART, Document
from borgish.spec.diff import differences
from borgish.spec.file.fields import JOB_FIELDS
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ownership

_ATTRIBUTES = {field.name: field.attribute for field in JOB_FIELDS}
_FIXED = ("name", "user", "kind", "in")
_FOLLOWING = {"runtime": "image", "appclass": "restart", "fixed_ports": "ports"}
"""What a file that does not name it leaves to follow from another field."""

HOW = {"SubmitJob": Ownership.SUBMIT, "ScaleJob": Ownership.SCALE, "UndoUpdate": Ownership.UNDO}
"""By the cause of an entry: commands by which people set fields of a job."""


class OwnedByOther(msgspec.Struct, frozen=True):
    """A field that a file gives otherwise than somebody else has set it. ``difference``: in words."""

    field: str
    owner: Owner
    difference: str


class Merged(msgspec.Struct, frozen=True):
    """What a job becomes by a document, and what stands in the way. ``resets``: what its own user set by a
    command since it was submitted, and is not kept."""

    spec: JobSpec
    conflicts: tuple[OwnedByOther, ...] = ()
    resets: tuple[OwnedByOther, ...] = ()


def merged(document: Document, job: Job | None, app: str, actor: str) -> Merged:
    """Return what a document makes of a job. A conflict is merged as the document has it.

    ``app`` is the key of the document's application. Who applies a job for the first time that is their own
    takes it over by that.
    """
    if job is None:
        return Merged(document.spec)
    present = msgspec.structs.replace(job.spec, tasks=job.tasks_wanted)
    named, spec = set(document.named), document.spec
    conflicts, resets = [], []
    others = dict(_of_others(job, document, app, job.present.by))
    if "resources" in others and "resources" not in named:
        spec = _with_resources(document, present.resources)
    for field, owner in others.items():
        if field not in named:
            spec = _with_value_of(spec, present, field, named)
        elif _value(spec, field) != _value(present, field):
            other = OwnedByOther(field, owner, _difference(present, spec, field))
            if job.app or owner.by != actor:
                conflicts.append(other)
            elif owner.how is not Ownership.SUBMIT:
                resets.append(other)
    if "tasks" not in named:
        spec = msgspec.structs.replace(spec, tasks=present.tasks)
    kept = {index: each for index, each in spec.overrides.items() if index < spec.tasks}
    if len(kept) < len(spec.overrides):
        spec = msgspec.structs.replace(spec, overrides=kept)
    return Merged(spec, tuple(conflicts), tuple(resets))


def _with_resources(document: Document, resources: Resources) -> JobSpec:
    """Return a document's job with the resources of somebody else, and what overrides give laid over them."""
    overrides = {
        index: msgspec.structs.replace(each, resources=resources.overridden(document.limits[index]))
        if index in document.limits
        else each
        for index, each in document.spec.overrides.items()
    }
    return msgspec.structs.replace(document.spec, resources=resources, overrides=overrides)


def without_conflicts(document: Document, job: Job | None, app: str, actor: str) -> Document:
    """Return a document that leaves to others what they have set otherwise."""
    theirs = {each.field for each in merged(document, job, app, actor).conflicts}
    named = tuple(field for field in document.named if field not in theirs)
    return msgspec.structs.replace(document, named=named)


def owners_after(job: Job, document: Document, app: str, at: float) -> dict[str, Owner]:
    """Return the owners of a job's fields after its document was applied. ``job`` has the new specification
    already, and belongs to the application that it belonged to before."""
    named = set(document.named)
    others = _of_others(job, document, app, job.submitted_by)
    owners = {field: owner for field, owner in others if field not in named}
    for field in document.named:
        if field in _FIXED:
            continue
        before = job.owners.get(field)
        is_mine = before is not None and before.how is Ownership.APPLY and before.by == app
        owners[field] = before if is_mine and before is not None else Owner(app, Ownership.APPLY, at)
    return dict(sorted(owners.items()))


def owners_changed(job: Job, spec: JobSpec, cause: str, actor: str, at: float) -> dict[str, Owner]:
    """Return the owners of a job's fields once somebody gave it this specification by a command."""
    how = HOW.get(cause)
    if how is None:
        return job.owners
    if not job.app and how is Ownership.SUBMIT:
        return {}  # all of it is of who submitted it
    owner = Owner(actor, how, at)
    owners = {**job.owners, **dict.fromkeys(_changed(job.spec, spec), owner)}
    return {field: each for field, each in sorted(owners.items()) if _is_set(spec, field)}


def _of_others(job: Job, document: Document, app: str, submitter: str) -> Iterator[tuple[str, Owner]]:
    """Yield the fields that are not this application's, and not as they are by default."""
    for field, owner in job.owners.items():
        if not (owner.how is Ownership.APPLY and owner.by == app):
            yield field, owner
    if not job.app:
        for field in _changed(document.spec, job.spec):
            if field not in job.owners:
                yield field, Owner(submitter, Ownership.SUBMIT, job.present.at)


def _changed(old: JobSpec, new: JobSpec) -> Iterator[str]:
    """Yield the fields in which two specifications differ, as job files call them."""
    for name, attribute in _ATTRIBUTES.items():
        before, after = getattr(old, attribute), getattr(new, attribute)
        if name in _FIXED or before == after:
            continue
        if name in PART_BY_PART:
            keys = before.keys() | after.keys()
            yield from (f"{name}.{key}" for key in sorted(keys) if before.get(key) != after.get(key))
        else:
            yield name


def _value(spec: JobSpec, field: str) -> object:
    name, _, key = field.partition(".")
    value = getattr(spec, _ATTRIBUTES[name])
    return value.get(key) if key else value


def _is_set(spec: JobSpec, field: str) -> bool:
    return _value(spec, field) is not None


def _with_value_of(spec: JobSpec, other: JobSpec, field: str, named: Collection[str] = ()) -> JobSpec:
    """Return a specification with one field as another has it, and what follows from that field, but for
    what is named itself."""
    name, _, key = field.partition(".")
    attribute = _ATTRIBUTES[name]
    if not key:
        along = [_ATTRIBUTES[each] for each, of in _FOLLOWING.items() if of == name and each not in named]
        return msgspec.structs.replace(spec, **{each: getattr(other, each) for each in (attribute, *along)})
    values = dict(getattr(spec, attribute))
    theirs = getattr(other, attribute)
    if key in theirs:
        values[key] = theirs[key]
    else:
        values.pop(key, None)
    return msgspec.structs.replace(spec, **{attribute: values})


def _difference(before: JobSpec, after: JobSpec, field: str) -> str:
    """Return how one field differs, in words."""
    alone = _with_value_of(before, after, field)
    return "; ".join(differences(before, alone)) or field
