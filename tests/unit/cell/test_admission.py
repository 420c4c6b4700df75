"""Who may ask for how much: what is refused, with which words, and what goes on."""

import msgspec
import pytest

from borgish.bands import Bands
from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    BeginEpoch,
    JoinMachine,
    KillTasks,
    RemoveQuota,
    RestartTasks,
    ScaleJob,
    SetQuota,
    SubmitJob,
)
from borgish.cell.decide import decide
from borgish.cell.events import Entry
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Rules, Snapshot
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound, OverQuota
from borgish.resources import Resources
from borgish.spec.job import JobSpec, Override
from borgish.vocabulary import Band, JobKind
from tests.sentences import check_sentence, refusals_checked
from tests.unit.cell.test_decide import machine

MIB = 1024**2
GIB = 1024**3
NOW = Now(1_767_225_600.0, 10.0)  # 2026-01-01T00:00:00Z


class Desk:
    """A cell with a machine of 4 cpu and 8 GiB, and somebody who decides and applies."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.cell = Cell(Snapshot("test"))
        self.now = NOW
        self.do(BeginEpoch(1, "me", rules))
        self.do(JoinMachine(machine(), "i1", known=False))

    def do(self, command: Command) -> str:
        with refusals_checked():
            decision = decide(self.cell, Observed(), command, "ann", self.now)
        for text in (decision.text, *decision.notes):
            check_sentence(text)
        if decision.events:
            position = self.cell.position + 1
            apply_entry(self.cell, Entry(position, self.now.wall, 1, 1, "ann", "test", decision.events))
        assert violations(self.cell) == []
        return decision.text

    def quota(
        self, cpu_millis: int, ram_bytes: int = GIB, band: Band = Band.PRODUCTION, **more: object
    ) -> str:
        amounts = {name: more.pop(name) for name in ("disk_bytes", "named", "devices") if name in more}
        limits = msgspec.structs.replace(Resources(cpu_millis, ram_bytes), **amounts)
        return self.do(msgspec.structs.replace(SetQuota("ann", band, limits), **more))

    def used(self, key: str = "ann/production") -> Resources:
        return self.cell.demand.of(key)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def spec(tasks: int = 1, name: str = "web", priority: int = 200, **changes: object) -> JobSpec:
    job = JobSpec(name, "ann", tasks, ("true",), priority=priority, resources=Resources(1000, 100 * MIB))
    return msgspec.structs.replace(job, **changes)


def test_a_job_within_its_quota_is_admitted_to_the_last_bit(desk: Desk) -> None:
    desk.quota(3000, 300 * MIB)
    desk.do(SubmitJob(spec(3)))
    assert desk.used() == Resources(3000, 300 * MIB)


def test_what_is_missing_is_said_exactly(desk: Desk) -> None:
    desk.quota(20_000, 100 * GIB, beyond_cell=True)
    desk.do(SubmitJob(spec(14)))
    with pytest.raises(OverQuota) as refused:
        desk.do(SubmitJob(spec(12, "api")))
    assert refused.value.message == "ann/api asks for 12 cpu in production; quota 20, used 14: 6 cpu missing"
    assert "borgctl quota set ann --band production" in refused.value.hint
    assert refused.value.status == 409
    assert desk.used() == Resources(14_000, 1400 * MIB)


def test_every_resource_that_is_missing_is_said(desk: Desk) -> None:
    desk.quota(1000, GIB, disk_bytes=GIB, named={"licence": 1}, devices={"gpu": 1500}, beyond_cell=True)
    needs = Resources(2000, MIB, 2 * GIB, {"licence": 2, "seat": 1}, {"gpu": 2000})
    with pytest.raises(OverQuota) as refused:
        desk.do(SubmitJob(spec(resources=needs)))
    assert refused.value.message == (
        "ann/web asks for 2 cpu in production; quota 1, used 0: 1 cpu missing, "
        "and for 2GiB disk; quota 1GiB, used 0B: 1GiB disk missing, "
        "and for 2 gpu; quota 1500m, used 0: 500m gpu missing, "
        "and for 2 licence; quota 1, used 0: 1 licence missing, "
        "and for 1 seat; quota 0, used 0: 1 seat missing"
    )


def test_devices_and_named_resources_add_up_and_go_again(desk: Desk) -> None:
    desk.quota(9000, 9 * GIB, named={"licence": 4}, devices={"gpu": 2000}, beyond_cell=True)
    needs = Resources(1, MIB, 0, {"licence": 1}, {"gpu": 500})
    desk.do(SubmitJob(spec(4, resources=needs)))
    assert (desk.used().named, desk.used().devices) == ({"licence": 4}, {"gpu": 2000})
    with pytest.raises(OverQuota, match="500m gpu missing"):
        desk.do(ScaleJob("ann/web", 5))
    desk.do(KillTasks("ann/web"))
    assert desk.used() == Resources()
    assert desk.cell.demand.totals == {}


def test_overrides_count_with_their_own_limits(desk: Desk) -> None:
    desk.quota(4000, GIB)
    large = {1: Override(resources=Resources(2500, 100 * MIB)), 2: Override(env={"A": "b"})}
    with pytest.raises(OverQuota, match=r"4.5 cpu in production; quota 4, used 0: 500m cpu missing"):
        desk.do(SubmitJob(spec(3, overrides=large)))
    desk.quota(4500, GIB, beyond_cell=True)
    desk.do(SubmitJob(spec(3, overrides=large)))
    assert desk.used() == Resources(4500, 300 * MIB)
    desk.do(KillTasks("ann/web", (1,)))
    assert desk.used() == Resources(2000, 200 * MIB)
    desk.do(ScaleJob("ann/web", 1))
    assert desk.used() == Resources(1000, 100 * MIB)


def test_more_tasks_are_checked_and_fewer_are_not(desk: Desk) -> None:
    desk.quota(3000)
    desk.do(SubmitJob(spec(2)))
    with pytest.raises(OverQuota, match="asks for 2 cpu in production; quota 3, used 2: 1 cpu missing"):
        desk.do(ScaleJob("ann/web", 4))
    desk.do(ScaleJob("ann/web", 3))
    desk.quota(1000)
    desk.do(ScaleJob("ann/web", 2))
    assert desk.used().cpu_millis == 2000


def test_dead_tasks_ask_for_nothing_until_they_are_restarted(desk: Desk) -> None:
    desk.quota(3000)
    desk.do(SubmitJob(spec(3)))
    desk.do(KillTasks("ann/web", (0, 1)))
    desk.do(SubmitJob(spec(1, "api")))
    with pytest.raises(OverQuota, match="asks for 2 cpu in production; quota 3, used 2: 1 cpu missing"):
        desk.do(RestartTasks("ann/web", hurried=True))
    desk.do(RestartTasks("ann/web", (1,), hurried=True))
    assert desk.used().cpu_millis == 3000


def test_a_dead_job_is_checked_when_it_is_submitted_again(desk: Desk) -> None:
    desk.do(SubmitJob(spec(3)))
    desk.do(KillTasks("ann/web"))
    desk.quota(2000)
    with pytest.raises(OverQuota, match="1 cpu missing"):
        desk.do(SubmitJob(spec(3)))
    desk.do(SubmitJob(spec(2)))


def test_the_same_job_again_is_no_new_demand(desk: Desk) -> None:
    desk.quota(2000)
    desk.do(SubmitJob(spec(2)))
    assert "is there already" in desk.do(SubmitJob(spec(2)))


def test_killed_tasks_come_back_only_within_the_quota(desk: Desk) -> None:
    desk.quota(2000)
    desk.do(SubmitJob(spec(2)))
    desk.do(KillTasks("ann/web", (0,)))
    desk.quota(1000)
    with pytest.raises(OverQuota, match="1 cpu missing"):
        desk.do(SubmitJob(spec(2)))
    desk.quota(2000)
    assert "1 task that was killed is pending again" in desk.do(SubmitJob(spec(2)))
    assert desk.used().cpu_millis == 2000


def test_tasks_in_an_alloc_set_ask_for_nothing_since_the_set_does(desk: Desk) -> None:
    desk.quota(2000)
    desk.do(SubmitJob(spec(2, "room", kind=JobKind.ALLOC_SET, run=())))
    desk.do(SubmitJob(spec(9, inside="ann/room")))
    assert desk.used().cpu_millis == 2000
    with pytest.raises(OverQuota):
        desk.do(SubmitJob(spec(1, "hall", kind=JobKind.ALLOC_SET, run=())))


def test_users_and_bands_are_apart(desk: Desk) -> None:
    desk.quota(1000)
    desk.quota(2000, band=Band.BATCH)
    desk.do(SubmitJob(spec(2, "low", priority=150)))
    desk.do(SubmitJob(spec(1)))
    desk.do(SubmitJob(spec(9, user="bob")))
    for priority in (100, 299):
        with pytest.raises(OverQuota):
            desk.do(SubmitJob(spec(1, "more", priority=priority)))


def test_the_free_band_is_not_limited(desk: Desk) -> None:
    strict = Desk(Rules(quota_required=True))
    for one in (desk, strict):
        one.do(SubmitJob(spec(9000, priority=99)))
        with pytest.raises(Invalid, match="not limited"):
            one.quota(1000, band=Band.FREE)


def test_who_has_no_quota_is_not_limited_unless_the_cell_requires_one(desk: Desk) -> None:
    desk.do(SetQuota("bob", Band.PRODUCTION, Resources(1000, GIB)))
    desk.do(SubmitJob(spec(9000)))
    strict = Desk(Rules(quota_required=True))
    with pytest.raises(OverQuota, match=r"quota 0, used 0.*\(ann has no quota in production, and this cell"):
        strict.do(SubmitJob(spec(1)))
    strict.quota(1000)
    strict.do(SubmitJob(spec(1)))


def test_a_quota_below_what_is_used_is_kept_and_only_keeps_out_more(desk: Desk) -> None:
    desk.do(SubmitJob(spec(3)))
    said = desk.quota(1000)
    assert said == (
        "ann may ask for 1 cpu, 1GiB ram in production; 3 cpu, 300MiB ram are asked for already: "
        "that goes on, and nothing more is admitted"
    )
    assert desk.cell.jobs["ann/web"].pending == 3
    with pytest.raises(OverQuota, match="quota 1, used 3: 3 cpu missing"):
        desk.do(SubmitJob(spec(1, "api")))


def test_a_quota_that_is_exceeded_keeps_out_only_what_asks_for_that(desk: Desk) -> None:
    desk.do(SubmitJob(spec(1, resources=Resources(1, MIB, 5 * GIB))))
    desk.quota(4000, GIB, disk_bytes=GIB)
    desk.do(SubmitJob(spec(1, "dry")))
    with pytest.raises(OverQuota, match="1B disk"):
        desk.do(SubmitJob(spec(1, "wet", resources=Resources(1, MIB, 1))))


def test_from_its_end_on_a_quota_is_nothing_and_what_runs_goes_on(desk: Desk) -> None:
    said = desk.quota(2000, until=NOW.wall + 60)
    assert said == "ann may ask for 2 cpu, 1GiB ram in production until 2026-01-01 00:01 UTC"
    desk.now = NOW.later(59.9)
    desk.do(SubmitJob(spec(1)))
    desk.now = NOW.later(60)
    with pytest.raises(OverQuota, match=r"quota 0, used 1.*the quota of ann ended at 2026-01-01 00:01 UTC"):
        desk.do(SubmitJob(spec(1, "api")))
    assert desk.cell.jobs["ann/web"].pending == 1
    with pytest.raises(Invalid, match="is in the past"):
        desk.quota(2000, until=desk.now.wall)
    desk.quota(2000)
    desk.do(SubmitJob(spec(1, "api")))


def test_the_quotas_of_prod_are_no_more_than_the_cell_has(desk: Desk) -> None:
    desk.quota(3000, 6 * GIB)
    bob = SetQuota("bob", Band.MONITORING, Resources(2000, 4 * GIB))
    with pytest.raises(Conflict) as refused:
        desk.do(bob)
    assert refused.value.message == (
        "the quotas of production and monitoring would add up to "
        "5 cpu, where the cell has 4: 1 cpu too much, "
        "and 10GiB ram, where the cell has 8GiB: 2GiB ram too much"
    )
    assert "--beyond-cell" in refused.value.hint
    desk.do(msgspec.structs.replace(bob, band=Band.BATCH))
    desk.do(msgspec.structs.replace(bob, beyond_cell=True))


def test_what_no_machine_has_is_too_much_from_the_first_on(desk: Desk) -> None:
    with pytest.raises(Conflict, match="1 licence, where the cell has 0: 1 licence too much"):
        desk.quota(1000, named={"licence": 1})


def test_a_quota_beyond_the_cell_may_be_lowered(desk: Desk) -> None:
    desk.quota(9000, 8 * GIB, beyond_cell=True)
    desk.quota(8000, 8 * GIB)
    with pytest.raises(Conflict, match="too much"):
        desk.quota(8001, 8 * GIB)


def test_a_quota_that_has_ended_leaves_the_cell_to_others(desk: Desk) -> None:
    desk.quota(4000, until=NOW.wall + 60)
    bob = SetQuota("bob", Band.PRODUCTION, Resources(4000, GIB))
    with pytest.raises(Conflict):
        desk.do(bob)
    desk.now = NOW.later(61)
    desk.do(bob)


def test_the_same_quota_again_changes_nothing(desk: Desk) -> None:
    desk.quota(1000, named={"b": 1, "a": 2, "none": 0}, beyond_cell=True)
    position = desk.cell.position
    assert desk.cell.quotas["ann/production"].limits.named == {"a": 2, "b": 1}
    desk.quota(1000, named={"a": 2, "b": 1}, beyond_cell=True)
    assert desk.cell.position == position


def test_a_quota_is_removed(desk: Desk) -> None:
    desk.quota(1000)
    assert desk.do(RemoveQuota("ann", Band.PRODUCTION)) == (
        "ann has no quota in production, and is not limited any more there"
    )
    desk.do(SubmitJob(spec(9)))
    with pytest.raises(NotFound, match="ann has no quota in production") as caught:
        desk.do(RemoveQuota("ann", Band.PRODUCTION))
    assert "borgctl quota list" in caught.value.hint
    for band in (Band.BATCH, Band.MONITORING):
        desk.quota(1000, band=band)
    with pytest.raises(NotFound) as caught:
        desk.do(RemoveQuota("ann", Band.PRODUCTION))
    assert caught.value.hint == "there is one in batch, monitoring"


def test_without_a_quota_nothing_is_left_where_one_is_required(desk: Desk) -> None:
    desk.cell.rules = Rules(quota_required=True)
    desk.quota(1000)
    assert desk.do(RemoveQuota("ann", Band.PRODUCTION)).endswith("and may ask for nothing more there")


def test_what_is_asked_for_is_known_again_from_the_records(desk: Desk) -> None:
    desk.do(SubmitJob(spec(3, overrides={0: Override(resources=Resources(1, 2, 3, {"licence": 1}))})))
    desk.do(SubmitJob(spec(2, "low", priority=0)))
    desk.do(KillTasks("ann/web", (2,)))
    again = Cell(msgspec.msgpack.decode(msgspec.msgpack.encode(desk.cell.snapshot()), type=Snapshot))
    assert again.demand.totals == desk.cell.demand.totals
    assert set(again.demand.totals) == {"ann/production", "ann/free"}


def test_bands_of_the_cell_say_whose_quota_it_is() -> None:
    desk = Desk(Rules(Bands(monitoring=360, production=120, batch=110)))
    desk.quota(1000)
    desk.do(SubmitJob(spec(9, "low", priority=119)))
    with pytest.raises(OverQuota, match="in production"):
        desk.do(SubmitJob(spec(2, priority=120)))
