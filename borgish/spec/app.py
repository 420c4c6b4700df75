"""An application: several jobs that are one thing to their user, and what its files say of each.

The Borg paper names it as the first thing it would do otherwise: jobs were the only way to group tasks
(section 8.1).
"""

from collections.abc import Iterable

import msgspec

from borgish.resources import Amounts
from borgish.spec.job import JobSpec
from borgish.vocabulary import JobKind

PART_BY_PART = ("labels", "annotations", "env")
"""Fields of which a file names single keys, each with its owner."""


class AppSpec(msgspec.Struct, frozen=True):
    """The application itself (a document of ``kind: app``). Its labels reach its jobs when they are read."""

    name: str
    user: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @property
    def key(self) -> str:
        """The application's name in its cell: ``user/name``."""
        return f"{self.user}/{self.name}"


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job as a file of its application has it. ``named``: the fields that the file gives, in order, as the
    file calls them; of labels, annotations and env one for each key, like ``labels.team``.

    ``limits`` are what overrides give of resources, by index: the rest follows the resources of the job,
    which may be somebody else's.
    """

    spec: JobSpec
    named: tuple[str, ...] = ()
    limits: dict[int, Amounts] = {}

    @property
    def key(self) -> str:
        """The job's name in its cell."""
        return self.spec.key


def to_completion(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Return those of the jobs that run to completion."""
    return tuple(
        document
        for document in documents
        if not document.spec.is_service and document.spec.kind is JobKind.JOB
    )
