"""The simulated cell of ``control`` and ``time`` counts what machines report, also in differences."""

import asyncio
from pathlib import Path

from tests.bench.control import SimulatedCell, job_specs


async def test_tasks_that_come_to_a_machine_later_are_counted_too(tmp_path: Path) -> None:
    cell = SimulatedCell(f"sqlite:///{tmp_path}/cell.db")
    try:
        async with asyncio.timeout(30):
            await cell.begin(2)
            for job in job_specs(12, 3):
                await cell.submit([job])
                await cell.until_up(4 * (1 + int(job.name.removeprefix("job-"))))
        assert cell.up == 12
    finally:
        await cell.close()
