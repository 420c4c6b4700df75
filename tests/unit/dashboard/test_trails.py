"""What machines used lately is kept from the summaries that came, at even distances, and not without end."""

from borgish.dashboard.trails import MACHINES_MAX, SAMPLE_SECONDS, SAMPLES_MAX, Trails
from borgish.wire.api import UsageView
from tests.unit.dashboard import summaries


def test_samples_are_taken_at_even_distances() -> None:
    trails = Trails()
    for second in range(16):
        trails = trails.then((summaries.machine(name="m1", usage=UsageView(second, 0)),), float(second))
    assert [each.cpu_millis for each in trails.used["m1"]] == [0, 5, 10, 15]


def test_a_machine_that_is_gone_or_says_nothing_has_no_trail_and_an_old_one_ends() -> None:
    trails = Trails()
    for i in range(SAMPLES_MAX + 9):
        there = (summaries.machine(name="m1"), summaries.machine(name="m2", usage=None))
        trails = trails.then(there, i * SAMPLE_SECONDS)
    assert {name: len(used) for name, used in trails.used.items()} == {"m1": SAMPLES_MAX}
    assert trails.then((), 1e9).used == {}


def test_of_very_many_machines_nothing_is_kept() -> None:
    used = UsageView(5, 0)
    there = [summaries.machine(name=f"m{number}", usage=used) for number in range(MACHINES_MAX + 1)]
    assert Trails().then(there, 1.0).used == {}
    assert len(Trails().then(there[1:], 1.0).used) == MACHINES_MAX
