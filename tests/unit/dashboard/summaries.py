"""Summaries as a master would send them: busy, empty, hostile, huge."""

from typing import Any

import msgspec

from borgish.resources import Resources
from borgish.vocabulary import Band, Outcome, State
from borgish.wire.api import (
    BandUse,
    EventView,
    JobView,
    MachineView,
    RefusalView,
    StatusView,
    SummaryView,
    UsageView,
)

GIB = 1024**3
STARTED = "2026-01-02T00:04:05.000Z"
NOW = "2026-01-02T03:04:05.000Z"
HOSTILE = (
    "[bold]x[/bold]",
    "[/bold]",
    "\x1b]0;owned\x07",
    "\x1b[2J\x9b31m",
    "👩\u200d👩\u200d👧 👍🏽 ❤\ufe0f 🇩🇪 🚀",
    "漢字かな交じり文のとても長い名前",
    "abc\u202edef\u2066",
    "e\u0301" * 60,
    "a\r\n\tb\x00\x7f\u2028",
    "\ufe0f\u0301\u200b\u3164",
    "x" * 5000,
)

_STATUS = StatusView(
    cell="local",
    version="0.1.0",
    position=4217,
    timeline=1,
    epoch=3,
    started_at=STARTED,
    now=NOW,
    machines=0,
    machines_up=0,
    jobs=0,
    tasks=0,
    pending=0,
    running=0,
    up=0,
    dead=0,
    capacity=Resources(),
    bands=tuple(BandUse(band, 0, 0, 0) for band in Band),
    store="sqlite",
    last_checkpoint=None,
)
_MACHINE = MachineView(
    name="m1",
    state="up",
    address="http://127.0.0.1:41000",
    capacity=Resources(8000, 16 * GIB),
    committed=Resources(5000, 8 * GIB),
    usage=UsageView(2500, 3 * GIB),
    tasks=12,
    attributes={},
    runtimes=("process",),
    conditions=(),
    heard_seconds_ago=0.5,
    joined_at=STARTED,
    reason="",
    orphans=(),
)
_JOB = JobView(
    name="ann/web",
    user="ann",
    state=State.RUNNING,
    tasks=3,
    pending=0,
    running=3,
    up=3,
    dead=0,
    finished=0,
    failed=0,
    priority=200,
    band=Band.PRODUCTION,
    appclass="latency_sensitive",
    service=True,
    generation=1,
    submitted_at=STARTED,
    submitted_by="ann",
    reason="",
)


def status(**changes: Any) -> StatusView:
    return msgspec.structs.replace(_STATUS, **changes)


def machine(**changes: Any) -> MachineView:
    return msgspec.structs.replace(_MACHINE, **changes)


def job(**changes: Any) -> JobView:
    return msgspec.structs.replace(_JOB, **changes)


def empty() -> SummaryView:
    return SummaryView(status(), (), (), (), ())


def busy() -> SummaryView:
    """A small cell in which everything that can be shown is there."""
    return SummaryView(
        status=status(
            machines=4,
            machines_up=3,
            jobs=6,
            tasks=31,
            pending=5,
            running=22,
            up=20,
            dead=5,
            finished=4,
            failed=1,
            capacity=Resources(24000, 48 * GIB),
            bands=(
                BandUse(Band.MONITORING, 150, 64 * 1024**2, 3),
                BandUse(Band.PRODUCTION, 9000, 12 * GIB, 9),
                BandUse(Band.BATCH, 6000, 12 * GIB, 8),
                BandUse(Band.FREE, 500, GIB, 2),
            ),
        ),
        machines=(
            machine(
                name="m3",
                state="down",
                tasks=0,
                usage=UsageView(0, 0),
                committed=Resources(),
                reason="not heard of for 10 s",
            ),
            machine(name="m2", state="cordoned", reason="new disk", orphans=("ann/old/0@12",)),
            machine(name="m1", usage=UsageView(7000, GIB), conditions=("disk nearly full",)),
            machine(name="m4", committed=Resources(8000, 15 * GIB), tasks=9),
        ),
        jobs=(
            job(
                name="ann/web",
                state=State.RUNNING,
                tasks=9,
                up=8,
                running=9,
                reason="task 3: its probe failed: HTTP 500",
            ),
            job(
                name="bob/train",
                tasks=12,
                pending=5,
                running=7,
                up=7,
                band=Band.BATCH,
                reason="0 of 4 machines fit: 3 have too little ram free, 1 is down",
            ),
            job(
                name="carl/import",
                state=State.DEAD,
                tasks=4,
                running=0,
                up=0,
                dead=4,
                finished=3,
                failed=1,
                outcome=Outcome.FAILED,
                band=Band.FREE,
                reason="task 2: exit code 1",
            ),
            job(
                name="dora/report",
                state=State.DEAD,
                tasks=1,
                running=0,
                up=0,
                dead=1,
                finished=1,
                outcome=Outcome.FINISHED,
                band=Band.FREE,
            ),
            job(name="ops/probe", band=Band.MONITORING),
            job(name="ann/cache-with-a-very-long-name-for-a-job", tasks=2, running=2, up=2),
        ),
        pending=(
            RefusalView(
                "bob/train",
                4,
                "7-10",
                "0 of 4 machines fit: 3 have too little ram free, 1 is down",
                {},
                "Ask for at most 1GiB of ram, or add a machine",
                NOW,
            ),
            RefusalView("bob/train", 1, "11", "0 of 4 machines fit: 4 lack gpu", {}, "", NOW),
        ),
        events=tuple(event(i) for i in range(1, 13)),
    )


def event(position: int, **changes: Any) -> EventView:
    kinds = (
        ("placed", "placed on m1", False),
        ("restarted", "restarted in place (restart 2): exit code 1", True),
    )
    kind, text, bad = kinds[position % 2]
    at = f"2026-01-02T03:04:{position % 60:02d}.000Z"
    view = EventView(position, at, kind, f"ann/web/{position} {text}", "ann/web", (position,), "m1", bad)
    return msgspec.structs.replace(view, **changes)


def full(machines: int = 100, jobs: int = 100, pending: int = 50, events: int = 50) -> SummaryView:
    """The most that a master sends, of a cell with 10,000 machines and 100,000 tasks."""
    return SummaryView(
        status=status(
            cell="large",
            position=12_345_678,
            machines=10_000,
            machines_up=9_990,
            jobs=2_000,
            tasks=100_000,
            pending=500,
            running=99_000,
            up=98_800,
            dead=500,
            finished=300,
            failed=150,
            killed=50,
            capacity=Resources(160_000_000, 640_000 * GIB),
            bands=tuple(
                BandUse(band, 20_000_000 * i, 90_000 * GIB * i, 25_000) for i, band in enumerate(Band)
            ),
        ),
        machines=tuple(
            machine(
                name=f"rack-{i % 40:02d}-machine-{i:05d}",
                tasks=i,
                usage=UsageView(70 * i, i * GIB // 8),
                reason="not heard of for 10 s" * (i < 10),
                state="down" if i < 10 else "up",
            )
            for i in range(machines)
        ),
        jobs=tuple(
            job(
                name=f"user-{i % 30}/service-{i:04d}",
                tasks=1000,
                up=900 + i,
                band=list(Band)[i % 4],
                reason="task 3: its probe failed: HTTP 500" * (i < 50),
            )
            for i in range(jobs)
        ),
        pending=tuple(
            RefusalView(
                f"user-{i}/train-{i}",
                10,
                "0-9",
                f"0 of 10000 machines fit: {9990 - i} have too little ram free, 10 are down",
                {},
                "Ask for at most 1GiB of ram, or add a machine",
                NOW,
            )
            for i in range(pending)
        ),
        events=tuple(event(i) for i in range(events)),
    )


def hostile() -> SummaryView:
    """Every text that somebody else wrote is an attack."""
    made = busy()
    return SummaryView(
        status=status(cell=HOSTILE[2] + HOSTILE[5], store=HOSTILE[0], version=HOSTILE[3]),
        machines=tuple(machine(name=text, state=text, reason=text, conditions=(text,)) for text in HOSTILE),
        jobs=tuple(job(name=text, reason=text, up=10**12, tasks=10**12) for text in HOSTILE),
        pending=tuple(RefusalView(text, 10**9, text, text, {}, text) for text in HOSTILE),
        events=tuple(msgspec.structs.replace(made.events[0], kind=text, text=text) for text in HOSTILE),
    )
