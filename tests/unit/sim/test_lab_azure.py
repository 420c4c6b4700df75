"""What arrives in the lab of schedulers: drawn from a table, which is that of the trace."""

from random import Random

import pytest

from borgish.sim.lab.azure import AZURE, LEVELS, SERVICE_SECONDS, Drawn, arrivals, fitted, quantile, read
from tests.bench.cluster import AZURE_FILE
from tests.bench.traces import lacking

DAY = 86_400.0


@pytest.mark.traces
def test_the_table_is_that_of_the_trace() -> None:
    assert lacking() == ""
    path = AZURE_FILE if AZURE_FILE.suffix == ".gz" else AZURE_FILE.with_name(f"{AZURE_FILE.name}.gz")
    assert read(path) == AZURE


def test_quantiles_rise_and_shares_add_up() -> None:
    for each in (AZURE.batch, AZURE.service):
        assert len(each.sizes) == len(each.seconds) == len(LEVELS)
        assert list(each.sizes) == sorted(each.sizes)
        assert list(each.seconds) == sorted(each.seconds)
        assert sum(share for _, _, share in each.flavours) == pytest.approx(1.0, abs=0.001)
    assert AZURE.batch.share + AZURE.service.share == pytest.approx(1.0)


def drawn() -> list[Drawn]:
    return list(arrivals(Random(1), AZURE, 1.0, DAY))


def test_what_is_drawn_is_as_the_table_says() -> None:
    jobs = drawn()
    assert [job.at for job in jobs] == sorted(job.at for job in jobs)
    assert len(jobs) / (DAY / 300) == pytest.approx(AZURE.jobs_per_slot, rel=0.1)
    services = [job for job in jobs if job.is_service]
    assert len(services) / len(jobs) == pytest.approx(AZURE.service.share, rel=0.1)
    assert min(job.seconds for job in services) >= SERVICE_SECONDS
    assert max(job.seconds for job in jobs if not job.is_service) < SERVICE_SECONDS
    assert jobs == drawn()


def test_a_share_of_it_brings_so_many_jobs() -> None:
    part = list(arrivals(Random(1), AZURE, 0.25, DAY))
    assert len(part) == pytest.approx(len(drawn()) / 4, rel=0.1)


@pytest.mark.parametrize(("level", "value"), [(0.0, 0.0), (0.05, 5.0), (0.1, 10.0), (1.0, 110.0)])
def test_between_quantiles_there_are_lines(level: float, value: float) -> None:
    values = [10.0 * place for place in range(len(LEVELS))]
    assert quantile(values, level) == pytest.approx(value)


def test_a_table_is_fitted_to_batches() -> None:
    def row(start: int, batch: str, seconds: float) -> dict[str, str]:
        lasts = {"duration_lo_s": f"{seconds}", "duration_hi_s": f"{seconds}"}
        return {"start_s": f"{start}", "batch": batch, "vcpu": "2", "mem_gb": "3.5", **lasts}

    short = [row(300 * (batch // 3), f"b{batch}", 600.0) for batch in range(9) for _ in range(2)]
    table = fitted(
        [*short, row(0, "long", 2 * SERVICE_SECONDS), *(row(900, f"c{n}", 60.0) for n in range(30))]
    )
    assert table.jobs_per_slot == pytest.approx(40 / 4)
    assert table.service.share == pytest.approx(1 / 40)
    assert (table.batch.sizes[0], table.batch.sizes[-1]) == (1.0, 2.0)
    assert table.service.flavours == ((2.0, 3.5, 1.0),)
