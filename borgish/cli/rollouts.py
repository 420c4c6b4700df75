"""How updates, restarts and rollbacks of jobs read: how far one is, what it waits for, how it came out."""

from borgish.cli.render import fields
from borgish.text import age, plural, safe
from borgish.vocabulary import Hold, RolloutKind
from borgish.wire.api import JobDetail, LastRolloutView, RolloutView

_DONE = {RolloutKind.UPDATE: "changed", RolloutKind.RESTART: "restarted", RolloutKind.ROLLBACK: "reached"}


def rollout_line(detail: JobDetail, rollout: RolloutView) -> str:
    """Return how far a rollout is, and what it waits for, in one line."""
    what = f"version {detail.job.version}" if rollout.kind is RolloutKind.UPDATE else rollout.kind
    waits = _waits(rollout)
    line = f"{detail.job.name}: {what}: {_progress(rollout)}{f'; {waits}' if waits else ''}"
    return safe(line)


def last_words(detail: JobDetail, last: LastRolloutView) -> str:
    """Return how the last rollout came out: ``version 3: complete``."""
    what = f"version {last.version}" if last.kind is RolloutKind.UPDATE else last.kind
    skipped = f"; left as they were: {last.skipped}" if last.skipped else ""
    return safe(f"{detail.job.name}: {what}: {last.outcome}{skipped}")


def versions_words(detail: JobDetail) -> str:
    """Return the version of a job, and those that its tasks run where these are others."""
    version, running = detail.job.version, detail.versions
    if not set(running) - {version}:
        return str(version)
    counts = [f"{plural(count, 'task')} of version {number}" for number, count in running.items()]
    return f"{version} (running: {', '.join(counts)})"


def status_in_full(detail: JobDetail) -> str:
    """Return the rollout of a job as people read it, or how the last one came out."""
    rollout, last = detail.rollout, detail.last_rollout
    pairs = [("job", detail.job.name), ("version", versions_words(detail))]
    if rollout is not None:
        pairs += [
            (str(rollout.kind), f"{rollout.reason}, {age(rollout.since)} ago"),
            ("so far", f"{_progress(rollout)}, {rollout.at_a_time} at a time"),
            ("now", _waits(rollout) or "goes on"),
            *(("to type" if i == 0 else "", way) for i, way in enumerate(rollout.ways_out)),
        ]
    if last is not None:
        what = last.reason or f"version {last.version}"
        pairs.append((f"last {last.kind}", f"{what}: {last.outcome}, {age(last.at)} ago"))
        if last.skipped:
            way = "" if rollout else f": `borgctl job restart {detail.job.name} {last.skipped}` changes them"
            pairs.append(("skipped", f"{last.skipped}, left as they were{way}"))
    text = fields(pairs)
    return text if rollout or last else f"{text}no update is under way, and none has come to its end yet\n"


def _progress(rollout: RolloutView) -> str:
    tasks = plural(rollout.changed + rollout.left, "task")
    return f"{rollout.changed} of {tasks} {_DONE[rollout.kind]}"


def _waits(rollout: RolloutView) -> str:
    match rollout.hold:
        case Hold.PAUSED:
            return rollout.waits  # paused by ann
        case Hold.CANARY:
            return f"waits to be promoted: {rollout.waits}"
        case Hold.FAILED:
            return f"paused: {rollout.waits}"
        case None:
            return f"waits: {rollout.waits}" if rollout.waits else ""
