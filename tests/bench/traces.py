"""Reads the public traces that packing is judged on, in ``$BORGISH_TRACES`` (default ``../shared/data``)."""

import csv
import gzip
import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path

from borgish.cell.model import Machine
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.sim.pack.packing import DEVICE, Arrival, machine_of
from borgish.spec.job import Constraint
from tests.bench.cluster import AZURE_FILE, LARGEST_CPU_MILLIS, LARGEST_RAM_BYTES, MIX_FILE, TRACES

OPENB = ("default", "cpu200", "gpushare60", "multigpu30", "gpuspec20")
NODES_FILE = TRACES / "openb" / "openb_node_list_gpu_node.csv"
INFLATED_TO = 1.3  # of the devices there are
MIB, GIB = 1024**2, 1024**3
SNAPSHOT_BEFORE_END_SECONDS = 12 * 3600
SPARE = 1.5  # the cell is so many times as large as what is needed
HOW_TO_GET = (
    "openb is cluster-trace-gpu-v2023 of github.com/alibaba/clusterdata, azure-vm-2017 is V1 of "
    "github.com/Azure/AzurePublicDataset; set BORGISH_TRACES to the folder that has both"
)


def lacking() -> str:
    """Return what is missing and how to get it, "" when all is there."""
    files = [NODES_FILE, MIX_FILE, AZURE_FILE, *map(_pods_file, OPENB)]
    missing = [file for file in files if not file.is_file() and not _packed(file).is_file()]
    return f"no {missing[0].relative_to(TRACES)} in $BORGISH_TRACES; {HOW_TO_GET}" if missing else ""


def _pods_file(trace: str) -> Path:
    return TRACES / "openb" / f"openb_pod_list_{trace}.csv"


def _packed(file: Path) -> Path:
    return file.with_name(f"{file.name}.gz")


def _rows(file: Path) -> Iterator[dict[str, str]]:
    plain = file.suffix != ".gz" and file.is_file()
    packed = file if file.suffix == ".gz" else _packed(file)
    content = file.read_text() if plain else gzip.decompress(packed.read_bytes()).decode()
    yield from csv.DictReader(content.splitlines())


@cache
def openb_machines() -> tuple[Machine, ...]:
    """Return the machines with GPUs."""
    return tuple(
        machine_of(
            row["sn"],
            Resources(
                int(row["cpu_milli"]),
                int(row["memory_mib"]) * MIB,
                devices={DEVICE: int(row["gpu"]) * DEVICE_MILLIS},
            ),
            {"device_model": row["model"]},
        )
        for row in _rows(NODES_FILE)
    )


@cache
def _openb_tasks(trace: str) -> tuple[Arrival, ...]:
    """Return the tasks of a list, by name."""
    rows = sorted(_rows(_pods_file(trace)), key=lambda row: row["name"])
    return tuple(
        Arrival("openb", row["name"], 0, _openb_needs(row), _models(row.get("gpu_spec") or ""))
        for row in rows
    )


def _openb_needs(row: dict[str, str]) -> Resources:
    millis = int(row["num_gpu"]) * min(DEVICE_MILLIS, int(row["gpu_milli"] or 0))
    devices = {DEVICE: millis} if millis else {}
    return Resources(int(row["cpu_milli"]), int(row["memory_mib"]) * MIB, devices=devices)


def _models(spec: str) -> tuple[Constraint, ...]:
    return (Constraint("device_model", "in", tuple(dict.fromkeys(spec.split("|")))),) if spec else ()


def openb_arrivals(trace: str, seed: int) -> list[Arrival]:
    """Return a list in the order of a seed, longer by draws until all devices are asked for 1.3 times."""
    chance, tasks = random.Random(seed), _openb_tasks(trace)
    found = chance.sample(tasks, len(tasks))
    there = sum(machine.capacity.devices[DEVICE] for machine in openb_machines())
    left = int(INFLATED_TO * there) - sum(task.needs.devices.get(DEVICE, 0) for task in tasks)
    while True:
        drawn = chance.choice(tasks)
        left -= drawn.needs.devices.get(DEVICE, 0)
        if left < 0:
            break
        found.append(drawn)
    return [_alone(task, number) for number, task in enumerate(found)]


def _alone(task: Arrival, number: int) -> Arrival:
    """Return the task as a job of its own: a task of the list may come more than once."""
    return Arrival(task.user, f"{number}", task.priority, task.needs, task.constraints)


@cache
def azure_snapshot(share: float = 1.0) -> tuple[Arrival, ...]:
    """Return the VMs that lived at noon of the trace's last day, each a job of its own; users are batches.

    ``share`` is how many of them are taken. The first of each batch come first, then the second, and so on.
    """
    rows = [(float(row["start_s"]), row) for row in _rows(AZURE_FILE)]
    at = max(start for start, _ in rows) - SNAPSHOT_BEFORE_END_SECONDS
    batches: dict[str, list[Arrival]] = {}
    for start, row in rows:
        low = float(row["duration_lo_s"])
        if start <= at < start + (low + float(row["duration_hi_s"] or low)) / 2:
            needs = Resources(int(float(row["vcpu"]) * 1000), int(float(row["mem_gb"]) * GIB))
            vms = batches.setdefault(row["batch"], [])
            vms.append(Arrival(f"b{row['batch']}", f"vm{len(vms)}", 0, needs))
    found = [vm for turn in zip_longest(*batches.values()) for vm in turn if vm is not None]
    return tuple(found[: int(share * len(found))])


def cell_for(tasks: Sequence[Arrival]) -> list[Machine]:
    """Return machines of the 2011 mix, half as many again as the tasks need in sum."""
    mix = [
        (float(row["cpu_capacity"]), float(row["memory_capacity"]), int(row["machines"]))
        for row in _rows(MIX_FILE)
    ]
    cpu = sum(task.needs.cpu_millis for task in tasks) / LARGEST_CPU_MILLIS
    ram = sum(task.needs.ram_bytes for task in tasks) / LARGEST_RAM_BYTES
    scale = SPARE * max(cpu / sum(c * n for c, _, n in mix), ram / sum(r * n for _, r, n in mix))
    found: list[Machine] = []
    for cpu_share, ram_share, count in mix:
        capacity = Resources(int(cpu_share * LARGEST_CPU_MILLIS), int(ram_share * LARGEST_RAM_BYTES))
        found += [machine_of(f"m{len(found) + n}", capacity, {}) for n in range(round(scale * count))]
    return found
