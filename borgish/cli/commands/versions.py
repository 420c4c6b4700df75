"""``borgctl job history`` and ``job show --version``: the specifications that a job had."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.cli.listing import Listing, latest
from borgish.cli.render import Column, Form, age_column, as_yaml, fields, show_one
from borgish.cli.screen import print_out
from borgish.errors import Forbidden
from borgish.spec.job import JobSpec
from borgish.text import age, safe_lines
from borgish.wire.api import VersionDetail, VersionList, VersionView

if TYPE_CHECKING:
    from borgish.client import Client

VERSION_COLUMNS: tuple[Column[VersionView], ...] = (
    Column("VERSION", lambda version: str(version.version), right=True),
    age_column("AGE", lambda version: version.at),
    Column("BY", lambda version: version.by),
    Column("RUNNING", lambda version: str(version.running), right=True),
    Column("CHANGES", lambda version: "; ".join(version.changes) or "-"),
)


def show_versions(
    client: "Client", job: str, form: Form, *, sort: str = "", columns: str = "", limit: int | None = None
) -> None:
    """List the versions of a job."""
    from borgish.client import quoted

    path = quoted("jobs", *job.split("/"), "versions")
    Listing(
        items=lambda: latest(client.get(path, None, VersionList).items, limit),
        columns=VERSION_COLUMNS,
        form=form,
        name=lambda version: f"{job}@{version.version}",
        none="no versions",
        chosen=columns,
        sort=sort,
    ).show()


def show_version(
    client: "Client", job: str, version: int, bands: Callable[[], Bands | None], form: Form
) -> None:
    """Show one version of a job, to people as the job file it is."""
    from borgish.client import quoted

    found = client.get(quoted("jobs", *job.split("/"), "versions", version), None, VersionDetail)
    if form is Form.FILE:
        print_out(as_file(found.spec, bands()))
        return
    show_one(found, form, f"{job}@{version}", lambda it, _: version_in_full(it, bands() or DEFAULT_BANDS))


HIDDEN = "***"  # what the API shows in place of a value


def as_file(spec: JobSpec, bands: Bands | None) -> str:
    """Return a job as its file. Raises Forbidden for one of which not all is shown to who asks."""
    from borgish.spec.file.write import job_file, write_job

    envs = [spec.env, *(each.env or {} for each in spec.overrides.values()), *(it.env for it in spec.group)]
    if any(value == HIDDEN for env in envs for value in env.values()):
        raise Forbidden(
            f"values in the environment of {spec.key} are shown to its user and to admins only",
            "Ask one of them for the file; -o yaml shows the rest",
        )
    text = write_job(spec, bands or DEFAULT_BANDS)
    # What could act on a terminal is escaped as YAML has it, so that the file says the same.
    return text if safe_lines(text) == text else as_yaml(job_file(spec, bands or DEFAULT_BANDS))


def version_in_full(found: VersionDetail, bands: Bands) -> str:
    """Return one version as people read it."""
    from borgish.spec.file.write import write_job

    version = found.version
    head = fields(
        [
            ("job", found.job),
            ("version", f"{version.version}{', the present one' * version.present}"),
            ("accepted", f"{age(version.at)} ago by {version.by}"),
            ("running", str(version.running)),
            ("changes", "; ".join(version.changes)),
        ]
    )
    return f"{head}\n{safe_lines(write_job(found.spec, bands))}"
