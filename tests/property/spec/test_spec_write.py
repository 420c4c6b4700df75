"""Whatever a job is, the file that is written of it is read as the same job."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from borgish.bands import Bands
from borgish.resources import Resources
from borgish.spec.file.read import read_job
from borgish.spec.file.write import write_job
from borgish.spec.job import (
    Affinity,
    Disruption,
    JobSpec,
    Override,
    Preference,
    Program,
    Spread,
    Toleration,
)
from borgish.spec.shares import Rate, Share
from borgish.vocabulary import TAINT_KEY_PATTERN, JobKind, Recheck
from tests.property.spec.test_spec_round_trip import (
    COMMANDS,
    CONSTRAINTS,
    ENVIRONMENTS,
    NAMES,
    WORDS,
    expected,
    jobs,
    seconds,
)

LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{"), max_size=20)
LONG = st.lists(
    LINES | st.sampled_from(["\n", "  x", "\t", " \n", "\x85", "\u2028", "\ufeff", "é", "🚀"])
).map("".join)
ANY_RUN = st.tuples(st.just("sh"), st.just("-c"), LONG)
DEVICES = st.dictionaries(
    NAMES, st.integers(1, 1000) | st.integers(1, 64).map(lambda n: 1000 * n), max_size=2
)
TAINTS = st.from_regex(TAINT_KEY_PATTERN, fullmatch=True).filter(lambda key: len(key) < 64)
WEIGHTS = st.integers(1, 100)
CONDITIONS = st.lists(CONSTRAINTS, min_size=1, max_size=2).map(tuple)
AFFINITIES = st.lists(st.builds(Affinity, CONDITIONS, WORDS, st.just(0) | WEIGHTS), max_size=2).map(tuple)
PLACING: dict[str, st.SearchStrategy[Any]] = {
    "prefer": st.lists(st.builds(Preference, CONSTRAINTS, WEIGHTS), max_size=2).map(tuple),
    "spread": st.lists(
        st.builds(Spread, WORDS, st.integers(0, 9)), max_size=2, unique_by=lambda it: it.over
    ).map(tuple),
    "near": AFFINITIES,
    "apart": AFFINITIES,
    "tolerations": st.lists(
        st.builds(Toleration, TAINTS, st.just("") | NAMES, st.none() | seconds(0, 10**9)), max_size=2
    ).map(tuple),
    "recheck": st.sampled_from(Recheck),
    "gang": st.booleans(),
    "inside": st.just("") | st.tuples(NAMES, NAMES).map("/".join),
    "preempt_within_seconds": st.just(0.0) | seconds(100, 600_000),
    "disruption": st.builds(
        Disruption,
        st.integers(1, 9).map(Share) | st.integers(1, 100).map(lambda n: Share(percent=n)),
        st.none() | st.builds(Rate, st.integers(1, 99), seconds(1000, 10**9)),
    ),
}


@st.composite
def whole_jobs(draw: st.DrawFn) -> JobSpec:
    """Jobs with every field that there is."""
    job = draw(jobs())
    ports = [name for name in draw(st.lists(NAMES, max_size=2, unique=True)) if not name.isdigit()]
    fixed = {name: 9100 for name in ports if name not in job.ports}
    group = draw(
        st.dictionaries(NAMES, st.tuples(COMMANDS, ENVIRONMENTS, st.sampled_from(["", "/a"])), max_size=2)
    )
    with_devices = msgspec.structs.replace(job.resources, devices=dict(sorted(draw(DEVICES).items())))
    overrides = {
        index: msgspec.structs.replace(
            each,
            run=draw(st.just(each.run) | ANY_RUN),
            resources=each.resources
            and msgspec.structs.replace(each.resources, devices=with_devices.devices | draw(DEVICES)),
        )
        for index, each in job.overrides.items()
    }
    return msgspec.structs.replace(
        job,
        run=draw(st.just(job.run) | ANY_RUN),
        ports=(*job.ports, *fixed),
        fixed_ports=fixed,
        group=tuple(Program(name, run, "", env, workdir) for name, (run, env, workdir) in group.items()),
        resources=with_devices,
        overrides=overrides,
        annotations={"note": draw(LONG)},
        **{name: draw(strategy) for name, strategy in PLACING.items()},
    )


def canonical(spec: JobSpec) -> JobSpec:
    """Return the job as reading leaves it: what is named is in order, and an override has the job's."""
    named = expected(spec)
    overrides = {
        index: Override(each.run, each.env, each.resources and _sorted(each.resources, before.resources))
        for (index, each), before in zip(sorted(named.overrides.items()), _by_index(spec), strict=True)
    }
    return msgspec.structs.replace(named, resources=_sorted(spec.resources), overrides=overrides)


def _by_index(spec: JobSpec) -> list[Override]:
    return [each for _, each in sorted(spec.overrides.items())]


def _sorted(amounts: Resources, given: Resources | None = None) -> Resources:
    devices = given.devices if given else amounts.devices
    return msgspec.structs.replace(
        amounts, named=dict(sorted(amounts.named.items())), devices=dict(sorted(devices.items()))
    )


@given(whole_jobs().map(canonical))
def test_a_job_written_and_read_is_the_same(spec: JobSpec) -> None:
    text = write_job(spec)
    assert read_job(text, "nobody") == spec
    assert write_job(read_job(text, "nobody")) == text


@given(NAMES, NAMES, st.integers(1, 9), DEVICES)
def test_so_is_an_alloc_set(name: str, user: str, tasks: int, devices: dict[str, int]) -> None:
    amounts = Resources(1500, 5 * 1024**2, 1, {}, dict(sorted(devices.items())))
    spec = JobSpec(name, user, tasks, (), kind=JobKind.ALLOC_SET, resources=amounts, priority=250)
    assert read_job(write_job(spec), "nobody") == spec


@given(jobs(), st.integers(0, 999))
def test_in_a_cell_with_other_bands(spec: JobSpec, priority: int) -> None:
    bands = Bands(900, 500, 10, 0, 999, {})
    job = canonical(msgspec.structs.replace(spec, priority=priority))
    assert read_job(write_job(job, bands), "nobody", bands) == job


@given(
    st.integers(0, 10**9),
    st.integers(0, 9),
    st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600)]),
)
def test_durations_are_written_exactly(number: int, decimals: int, unit: tuple[str, float]) -> None:
    text = f"{number}.{decimals:09d}{unit[0]}" if decimals else f"{number}{unit[0]}"
    file = f"{{name: a, user: b, run: [x], tolerations: [{{taint: t, for: {text}}}]}}"
    if number * unit[1] < 366 * 86400 - 1:
        spec = read_job(file, "b")
        assert read_job(write_job(spec), "b") == spec
