"""What arrives at a cell: jobs drawn from a small table that was fitted to a public trace.

The trace is of the virtual machines that tenants of Microsoft Azure asked for (Cortez et al., SOSP 2017;
Azure/AzurePublicDataset V1, CC BY 4.0), 259,159 of them in 53,109 batches over 3.5 days. A batch, what one
tenant asks for at one time, is a job here, and its machines are tasks. Whether it is a service nobody says.
So those that live for twelve hours or longer are taken for services: 18 % of the jobs, with 59 % of the core
hours. In Google's cells more than 80 % of the jobs are batch, and services have 55 to 80 % (Omega,
EuroSys 2013, section 2.1).

The table keeps quantiles, and what is drawn lies on the lines between them. ``python -m
borgish.sim.lab.azure FILE`` makes it from the trace, ``azure_v1_dev.csv.gz``. What is lost: most tasks of a
batch, not all, are alike; a tenth of the durations end with the trace; and how much arrives in five minutes
follows the hour of the day, where it is drawn anew here.
"""

import csv
import gzip
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median, pvariance

import msgspec

SLOT_SECONDS = 300.0
"""The grid of the trace."""
SERVICE_SECONDS = 12 * 3600.0
LEVELS = 0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0
"""Of the quantiles."""
FLAVOURS = 6


class Kind(msgspec.Struct, frozen=True):
    """Jobs of one kind. ``sizes`` (tasks) and ``seconds`` (how long they run) are quantiles at ``LEVELS``;
    ``flavours`` are the most frequent needs of a task, as cores, GB and a share of the jobs."""

    share: float  # of all jobs
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    flavours: tuple[tuple[float, float, float], ...]


class Table(msgspec.Struct, frozen=True):
    """What arrives. In each slot as many as a Poisson process brings whose rate is drawn for it, from a gamma
    distribution with this mean (jobs in a slot) and ``shape``."""

    jobs_per_slot: float
    shape: float
    batch: Kind
    service: Kind


AZURE = Table(
    jobs_per_slot=53.109,
    shape=9.65,
    batch=Kind(
        share=0.8186,
        sizes=(1.0, 1.0, 1.0, 1.0, 2.0, 7.0, 16.0, 43.0, 94.0, 181.0, 319.0, 587.0),
        seconds=(
            0.0,
            300.0,
            900.0,
            2700.0,
            12750.0,
            28950.0,
            34350.0,
            41550.0,
            41550.0,
            41550.0,
            41550.0,
            42975.0,
        ),
        flavours=(
            (1.0, 1.75, 0.5627),
            (2.0, 3.5, 0.2335),
            (4.0, 7.0, 0.0798),
            (8.0, 14.0, 0.0595),
            (1.0, 0.75, 0.0594),
            (8.0, 56.0, 0.0051),
        ),
    ),
    service=Kind(
        share=0.1814,
        sizes=(1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 6.0, 11.0, 16.0, 26.0, 75.0, 261.0),
        seconds=(
            43275.0,
            45150.0,
            52350.0,
            66750.0,
            129750.0,
            129750.0,
            216150.0,
            216150.0,
            302550.0,
            302550.0,
            302550.0,
            302550.0,
        ),
        flavours=(
            (1.0, 1.75, 0.6625),
            (2.0, 3.5, 0.1808),
            (4.0, 7.0, 0.0875),
            (1.0, 0.75, 0.025),
            (8.0, 14.0, 0.0238),
            (8.0, 56.0, 0.0205),
        ),
    ),
)


class Drawn(msgspec.Struct, frozen=True):
    """One job: when it comes, how long its tasks run, how many there are and what each needs."""

    at: float
    seconds: float
    tasks: int
    cores: float
    gigabytes: float
    is_service: bool


def arrivals(chance: Random, table: Table, share: float, until: float) -> Iterator[Drawn]:
    """Yield a share of what would arrive, until some second, in order."""
    begin = 0.0
    while begin < until:
        rate = chance.gammavariate(table.shape, share * table.jobs_per_slot / table.shape) / SLOT_SECONDS
        at = begin + chance.expovariate(rate)
        while at < min(until, begin + SLOT_SECONDS):
            yield drawn(chance, table, at)
            at += chance.expovariate(rate)
        begin += SLOT_SECONDS


def drawn(chance: Random, table: Table, at: float) -> Drawn:
    """Draw a job that comes at some second."""
    is_service = chance.random() < table.service.share
    kind = table.service if is_service else table.batch
    tasks = round(quantile(kind.sizes, chance.random()))
    seconds = max(1.0, quantile(kind.seconds, chance.random()))
    shares = [flavour[2] for flavour in kind.flavours]
    cores, gigabytes, _ = chance.choices(kind.flavours, shares)[0]
    return Drawn(at, seconds, max(1, tasks), cores, gigabytes, is_service)


def quantile(values: Sequence[float], level: float) -> float:
    """Return a value on the lines between quantiles at ``LEVELS``."""
    place = max(1, bisect_left(LEVELS, level))
    low, high = LEVELS[place - 1], LEVELS[place]
    share = (level - low) / (high - low)
    return values[place - 1] + share * (values[place] - values[place - 1])


# Making the table


def fitted(rows: Iterable[Mapping[str, str]]) -> Table:
    """Return the table of a trace, by its columns."""
    batches: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        batches.setdefault(row["batch"], []).append(row)
    seconds = {name: median(map(_seconds, tasks)) for name, tasks in batches.items()}
    begins = Counter(int(tasks[0]["start_s"]) for tasks in batches.values())
    slots = range(min(begins), max(begins) + 1, int(SLOT_SECONDS))
    counts = [begins[slot] for slot in slots]
    mean = sum(counts) / len(counts)
    kinds = [
        _kind(
            [tasks for name, tasks in batches.items() if (seconds[name] >= SERVICE_SECONDS) is is_service],
            [each for each in seconds.values() if (each >= SERVICE_SECONDS) is is_service],
            len(batches),
        )
        for is_service in (False, True)
    ]
    return Table(round(mean, 3), round(mean**2 / (pvariance(counts) - mean), 2), *kinds)


def _seconds(row: Mapping[str, str]) -> float:
    return (float(row["duration_lo_s"]) + float(row["duration_hi_s"])) / 2


def _kind(batches: Sequence[Sequence[Mapping[str, str]]], seconds: Sequence[float], jobs: int) -> Kind:
    flavours = Counter((float(tasks[0]["vcpu"]), float(tasks[0]["mem_gb"])) for tasks in batches)
    common = flavours.most_common(FLAVOURS)
    total = sum(count for _, count in common)
    return Kind(
        round(len(batches) / jobs, 4),
        _quantiles([len(tasks) for tasks in batches]),
        _quantiles(seconds),
        tuple((cores, gigabytes, round(count / total, 4)) for (cores, gigabytes), count in common),
    )


def _quantiles(values: Sequence[float]) -> tuple[float, ...]:
    ordered = sorted(values)
    return tuple(float(ordered[round(level * (len(ordered) - 1))]) for level in LEVELS)


def read(path: Path) -> Table:
    """Return the table of the trace in a file."""
    with gzip.open(path, "rt") as lines:
        return fitted(csv.DictReader(lines))


if __name__ == "__main__":
    print(read(Path(sys.argv[1])))
