"""The public traces are read as they are meant."""

import pytest

from tests.bench import traces

pytestmark = pytest.mark.traces


def test_the_machines_with_gpus() -> None:
    machines = traces.openb_machines()
    assert len(machines) == 1213
    assert sum(machine.capacity.devices["gpu"] for machine in machines) == 6_212_000
    assert sum(machine.capacity.cpu_millis for machine in machines) == 107_018_000
    assert sum(machine.capacity.ram_bytes for machine in machines) == 503_828_480 * traces.MIB


@pytest.mark.parametrize("trace", traces.OPENB)
def test_tasks_ask_for_130_percent(trace: str) -> None:
    first, second = (traces.openb_arrivals(trace, seed) for seed in (0, 1))
    for tasks in (first, second):
        asked = sum(task.needs.devices.get("gpu", 0) for task in tasks)
        assert 1.298 < asked / 6_212_000 < 1.302  # one list alone is a little above
        assert len({task.key for task in tasks}) == len(tasks)
    assert first != second
    assert first == traces.openb_arrivals(trace, 0)
    assert any(task.constraints for task in first) == (trace == "gpuspec20")


def test_the_snapshot_and_its_cell() -> None:
    tasks = traces.azure_snapshot()
    assert len(tasks) == 18_983
    assert len({task.user for task in tasks[:8289]}) == 8289  # the first of every batch
    assert sum(task.needs.cpu_millis for task in tasks) == 39_375_000
    cell = traces.cell_for(tasks)
    assert len(cell) == 1743
    assert len({machine.name for machine in cell}) == 1743
