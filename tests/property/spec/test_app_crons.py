"""Runs of crons that run an application: whatever the names, every job is of its run and stays within it."""

from hypothesis import assume, given
from hypothesis import strategies as st

from borgish.spec.cron import CronSpec, run_key
from borgish.spec.job import After, JobSpec

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True)


@given(
    st.data(),
    NAMES | st.sampled_from(["hand", "nightly-hand", "x-20261122t0200"]),
    st.lists(NAMES | st.sampled_from(["hand", "20261122t0200"]), min_size=1, max_size=5, unique=True),
    st.integers(0, 4_000_000_000),
    st.sampled_from(["* * * * *", "*/10 * * * * *"]),
)
def test_jobs_are_of_their_run_and_wait_within_it(
    data: st.DataObject, name: str, stages: list[str], due: int, schedule: str
) -> None:
    keys = [f"ann/{stage}" for stage in stages]
    specs = [
        JobSpec(
            stage,
            "ann",
            1,
            ("sh",),
            after=tuple(After(each) for each in data.draw(st.lists(st.sampled_from([*keys, "bob/db"])))),
            parent=data.draw(st.sampled_from(["", "ann/outside", *keys])),
        )
        for stage in stages
    ]
    assume("outside" not in stages)
    cron = CronSpec(schedule, JobSpec(name, "ann", 1, ()), app="app")
    for run in (cron.run_at(due), cron.run_by_hand(due)):
        jobs = cron.jobs_of(run, specs)
        made = {job.key for job in jobs}
        assert len(made) == len(stages)
        assert {run_key(cron.key, key) for key in made} == {f"ann/{run}"}
        for job, spec in zip(jobs, specs, strict=True):
            for each, before in zip(job.after, spec.after, strict=True):
                assert (each.job in made) == (before.job in keys)
            assert (job.parent in made) == (spec.parent in keys)
            assert job.run == spec.run
