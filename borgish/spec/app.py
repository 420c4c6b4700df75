"""An application: several jobs that are one thing to their user, and what its files say of each.

The Borg paper names it as the first thing it would do otherwise: jobs were the only way to group tasks
(section 8.1).
"""

import msgspec

from borgish.spec.job import JobSpec


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


class Document(msgspec.Struct, frozen=True):
    """A job as a file of its application has it. ``named``: the fields that the file gives, in order, as the
    file calls them; of labels, annotations and env one for each key, like ``labels.team``."""

    spec: JobSpec
    named: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The job's name in its cell."""
        return self.spec.key
