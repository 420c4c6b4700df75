"""Changes a cell by events about applications; see ``cell/apply.py``."""

from collections.abc import Callable
from typing import Any

import msgspec

from borgish.cell.apps.owners import owners_after
from borgish.cell.events import AnyEvent, AppApplied, AppRemoved, AppRestored, Entry
from borgish.cell.lifecycle import touch
from borgish.cell.limits.footprint import latest_versions
from borgish.cell.model import APP_VERSIONS_KEPT, EARLIER_VERSIONS_BYTES_MAX, App, AppVersion, Cell


def _applied(cell: Cell, event: AppApplied, entry: Entry) -> None:
    key = event.app.key
    present = AppVersion(event.app, event.documents, entry.at, entry.actor, event.crons)
    app = cell.apps.get(key)
    if app is None:
        cell.apps[key] = App(key, entry.position, present, event.version)
    elif event.version != app.version:
        _renew(cell, app, present, event.version)
    cell.footprint.note_app(key, cell.apps[key])
    cell.touched.apps.add(key)
    for document in event.documents:
        job = cell.jobs.get(document.key)
        if job is not None:
            job.owners = owners_after(job, document, key, entry.at)
            job.app = key
            touch(cell, job, ())
    for gone in event.left:
        _let_go(cell, gone)


def _removed(cell: Cell, event: AppRemoved, _entry: Entry) -> None:
    remove_app(cell, event.app)


def restore_app(cell: Cell, restored: AppRestored, position: int) -> None:
    """Let an application be what it was once, under a new number where it is there."""
    app = cell.apps.get(restored.key)
    if app is None:
        earlier = dict(restored.earlier)
        cell.apps[restored.key] = app = App(
            restored.key, restored.uid, restored.present, restored.version, earlier=earlier
        )
    else:
        _renew(cell, app, restored.present, restored.version)
    app.generation = position
    cell.footprint.note_app(app.key, app)
    cell.touched.apps.add(app.key)


def remove_app(cell: Cell, key: str) -> None:
    """Let there be no such application; its jobs belong to none."""
    del cell.apps[key]
    cell.footprint.note_app(key, None)
    cell.touched.apps.add(key)
    for job in cell.jobs.values():  # the index follows at the end of an entry, and there may be more in it
        if job.app == key:
            _let_go(cell, job.key)
    for cron in list(cell.crons.values()):
        if cron.app == key:
            cell.crons[cron.key] = msgspec.structs.replace(cron, app="")
            cell.touched.crons.add(cron.key)


def _renew(cell: Cell, app: App, present: AppVersion, version: int) -> None:
    earlier = {**app.earlier, app.version: app.present}
    if not cell.footprint.has_room(app.spec.user, app.present, cell.rules.footprint_bytes_max):
        earlier = {}
    app.earlier = latest_versions(earlier, APP_VERSIONS_KEPT - 1, EARLIER_VERSIONS_BYTES_MAX)
    app.present, app.version = present, version


def _let_go(cell: Cell, key: str) -> None:
    job = cell.jobs[key]
    job.app, job.owners = "", {}
    touch(cell, job, ())


APPLY: dict[type[AnyEvent], Callable[[Cell, Any, Entry], None]] = {AppApplied: _applied, AppRemoved: _removed}
