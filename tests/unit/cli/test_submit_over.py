"""``borgctl job submit --cells``: which of several cells is chosen, and what is submitted where."""

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.cli.commands.submit_over import CHOICES_MAX, Offer, choose, offer_of
from borgish.resources import Resources
from borgish.spec.job import Override
from borgish.vocabulary import Band, State
from borgish.wire.api import Accepted, BandUse, Problem, WhoamiView
from borgish.wire.api_plans import PlannedPlace, PlanView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import Asked, FakeMaster, job, refusal, spec, status
from tests.unit.cli.several import keep, logged_in

Out = pytest.CaptureFixture[str]
Masters = dict[str, FakeMaster]

PLACES = tuple(PlannedPlace(index, "m1") for index in range(3))
PLAN = PlanView("ann/web", "ann/web: 3 would be placed at once", 20, 1, 3, "plan-abc", PLACES)

offers = st.builds(
    Offer,
    st.sampled_from("abcd"),
    st.just(3),
    st.integers(0, 3),
    st.sampled_from([0, 0, 2]),
    st.sampled_from([0.1, 0.5, 0.9]),
    reason=st.sampled_from(["", "", "no quota"]),
)


@given(st.lists(offers, unique_by=lambda offer: offer.cell))
def test_the_best_cell_is_chosen(found: list[Offer]) -> None:
    chosen = choose(found)
    room = [offer for offer in found if offer.placed == 3 and not offer.reason]
    assert (chosen in room) if room else chosen is None
    for other in room:
        assert chosen
        if (chosen.preempted == 0) != (other.preempted == 0):
            assert chosen.preempted == 0  # nobody has to leave, and be the cell as full as it may
        elif chosen.fullest != other.fullest:
            assert chosen.fullest < other.fullest
        else:
            assert chosen.cell <= other.cell
    assert choose(found[::-1]) == chosen


def test_what_a_plan_comes_to() -> None:
    there = msgspec.structs.replace(
        status(),
        capacity=Resources(8000, 16 * 1024**3),
        bands=(BandUse(Band.PRODUCTION, 1000, 1024**3, 3), BandUse(Band.FREE, 500, 0, 1)),
    )
    web = spec(resources=Resources(500, 4 * 1024**3))
    assert offer_of("a", web, PLAN, there) == Offer("a", 3, 3, 0, 13 / 16, "ram")
    mixed = msgspec.structs.replace(web, overrides={1: Override(resources=Resources(6500, 0))})
    assert offer_of("a", mixed, PLAN, there) == Offer("a", 3, 3, 0, 9000 / 8000, "cpu")
    inside = msgspec.structs.replace(web, inside="ann/set")
    assert offer_of("a", inside, PLAN, there) == Offer("a", 3, 3, 0, 1500 / 8000, "cpu")
    away = msgspec.structs.replace(there, capacity=Resources())
    assert offer_of("a", web, PLAN, away).fullest == inf


def test_who_leaves_counts_once_and_who_waits_has_a_reason() -> None:
    left = (
        PlannedPlace(0, "m1", kept=True, victims=("bob/a/0", "bob/a/1")),
        PlannedPlace(1, "m1", kept=True, victims=("bob/a/1",)),
    )
    offer = offer_of("a", spec(), msgspec.structs.replace(PLAN, places=left, refusals=(refusal(),)), status())
    assert (offer.placed, offer.preempted, offer.has_room) == (2, 2, False)
    assert offer.reason == refusal().text
    later = msgspec.structs.replace(PLAN, places=PLACES[:2], notes=("the next pass goes on",))
    assert offer_of("a", spec(), later, status()).reason == "the next pass goes on"
    bare = msgspec.structs.replace(PLAN, places=())
    assert not offer_of("a", spec(), bare, status()).has_room


def used(cpu_millis: int) -> object:
    return msgspec.structs.replace(status(), bands=(BandUse(Band.PRODUCTION, cpu_millis, 0, 3),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.yaml"
    path.write_text("name: web\ntasks: 3\nrun: [serve]\nresources: {cpu: 500m, ram: 256MiB}\n")
    return path


@pytest.fixture
def masters(at_home: Run, tmp_path: Path) -> Iterator[Masters]:
    """Two cells that have room, west more of it."""
    with logged_in(tmp_path / "config", "east", "west") as made:
        for name, master in made.items():
            master.answers["POST /v1/plan"] = msgspec.structs.replace(PLAN, token=f"plan-{name}")
            master.answers["POST /v1/jobs"] = Accepted(5, "ann/web", "ann/web submitted")
            master.answers["GET /v1/status"] = used(4000 if name == "east" else 2000)
        yield made


def submissions(masters: Masters) -> dict[str, list[Asked]]:
    of = {
        name: [asked for asked in master.asked if (asked.method, asked.path) == ("POST", "/v1/jobs")]
        for name, master in masters.items()
    }
    return {name: asked for name, asked in of.items() if asked}


SUBMIT = ("job", "submit", "--detach", "--cells")


def test_it_goes_to_the_cell_with_room_by_its_plan(
    masters: Masters, at_home: Run, file: Path, capsys: Out
) -> None:
    assert at_home(*SUBMIT, "all", file) == 0
    said = capsys.readouterr()
    assert said.out == (
        "ann/web goes to west, which has room for all of it: 44% of the cpu would be asked for; "
        "east: 69% of the cpu would be asked for\n"
        "ann/web submitted\n"
    )
    assert said.err == "hint: `borgctl cell use west` makes other commands go there\n"
    (asked,) = submissions(masters).pop("west")
    assert asked.query == {"user": "ann", "plan": "plan-west"}
    assert asked.body == file.read_bytes()


def test_a_dry_run_submits_nothing(masters: Masters, at_home: Run, file: Path, capsys: Out) -> None:
    assert at_home(*SUBMIT, "all", "--dry-run", file) == 0
    assert "goes to west" in (said := capsys.readouterr().out)
    assert PLAN.text in said
    assert not submissions(masters)


@pytest.mark.parametrize("state", [State.RUNNING, State.PENDING])
def test_a_job_that_is_in_one_of_them_stays_there(
    state: State, masters: Masters, at_home: Run, file: Path, capsys: Out
) -> None:
    masters["east"].has(job(state=state))
    assert at_home(*SUBMIT, "all", file) == 0
    assert capsys.readouterr().out == "ann/web goes to east, where it is already\nann/web submitted\n"
    (asked,) = submissions(masters).pop("east")
    assert asked.query == {"user": "ann"}  # it was not chosen by a plan


def test_a_dead_job_holds_no_cell(masters: Masters, at_home: Run, file: Path) -> None:
    masters["east"].has(job(state=State.DEAD))
    assert at_home(*SUBMIT, "all", file) == 0
    assert [*submissions(masters)] == ["west"]


def test_a_job_that_is_in_several_is_refused(masters: Masters, at_home: Run, file: Path, capsys: Out) -> None:
    for master in masters.values():
        master.has(job())
    assert at_home(*SUBMIT, "all", file) == 1
    said = capsys.readouterr().err
    assert "ann/web is in several of these cells: east, west; nothing was submitted" in said
    assert "--cells east" in said
    assert not submissions(masters)


@pytest.mark.parametrize("user", [(), ("--user", "ann")])
def test_where_one_is_away_nothing_is_submitted(
    user: Sequence[str], masters: Masters, at_home: Run, file: Path, capsys: Out, tmp_path: Path
) -> None:
    keep(tmp_path / "config", "north", "http://127.0.0.1:1")
    masters["west"].answers["GET /v1/whoami"] = Problem("Unauthorized", 401, "the token is not known")
    assert at_home(*SUBMIT, "all", *user, file) == 4
    north, west, nothing, hint = capsys.readouterr().err.splitlines()
    assert north.startswith("error: north: http://127.0.0.1:1 cannot be reached")
    assert west.startswith("error: west: the token is not known")
    assert nothing == "error: nothing was submitted: a cell that cannot be asked might have the job"
    assert hint == "hint: Name the others: --cells east"
    assert not submissions(masters)


def test_a_token_that_ends_meanwhile_is_no_lack_of_room(
    masters: Masters, at_home: Run, file: Path, capsys: Out
) -> None:
    masters["east"].answers["POST /v1/plan"] = Problem("Unauthorized", 401, "the token is over")
    assert at_home(*SUBMIT, "all", file) == 4
    assert "error: east: the token is over" in capsys.readouterr().err


def test_where_no_cell_has_room_each_says_why(
    masters: Masters, at_home: Run, file: Path, capsys: Out
) -> None:
    full = msgspec.structs.replace(PLAN, places=PLACES[:1], refusals=(refusal(),))
    masters["east"].answers["POST /v1/plan"] = full
    masters["west"].answers["POST /v1/plan"] = Problem("Conflict", 409, "ann has no quota for production")
    assert at_home(*SUBMIT, "all", file) == 3
    assert capsys.readouterr().err == (
        "error: no cell has room for all of ann/web; nothing was submitted\n"
        "  east: 1 of 3 tasks would be placed: 0 of 3 machines fit: 3 have too little ram free\n"
        "  west: 0 of 3 tasks would be placed: ann has no quota for production\n"
    )
    assert not submissions(masters)


def test_a_cell_that_changed_meanwhile_is_asked_again(
    masters: Masters, at_home: Run, file: Path, capsys: Out
) -> None:
    west = masters["west"]

    def filled_up(_: Asked) -> Problem:
        west.answers["GET /v1/status"] = used(6000)
        return Problem("Conflict", 409, "the cell changed since this plan was made")

    west.answers["POST /v1/jobs"] = filled_up
    assert at_home(*SUBMIT, "all", file) == 0
    said = capsys.readouterr()
    assert "note: west: the cell changed since this plan was made; the cells are asked again" in said.err
    assert "ann/web goes to east" in said.out
    assert {name: len(asked) for name, asked in submissions(masters).items()} == {"east": 1, "west": 1}


def test_a_cell_that_changes_all_the_time_is_given_up(
    masters: Masters, at_home: Run, file: Path, capsys: Out
) -> None:
    masters["west"].answers["POST /v1/jobs"] = Problem("Conflict", 409, "the cell changed")
    assert at_home(*SUBMIT, "all", file) == 1
    assert len(submissions(masters)["west"]) == CHOICES_MAX
    last = "error: west changes faster than it can be chosen: the cell changed\nhint: Nothing was submitted"
    assert last in capsys.readouterr().err


def test_whose_job_it_is_must_be_one_user(masters: Masters, at_home: Run, file: Path, capsys: Out) -> None:
    masters["west"].answers["GET /v1/whoami"] = WhoamiView("ann-b", "user")
    assert at_home(*SUBMIT, "all", file) == 2
    assert "you are ann in east, ann-b in west, and a job has one user" in capsys.readouterr().err
    assert at_home(*SUBMIT, "all", "--user", "ann", file) == 0


@pytest.mark.parametrize("options", [("web.yaml",), ("--plan", "plan-abc"), ("--if-generation", "3")])
def test_what_is_of_one_cell_or_one_file(
    options: tuple[str, ...], masters: Masters, at_home: Run, file: Path, capsys: Out
) -> None:
    assert at_home(*SUBMIT, "all", *options, file) == 2
    assert "--cells: takes one file, and neither --plan nor --if-generation" in capsys.readouterr().err
    assert not submissions(masters)


def test_a_cron_has_no_place_now(masters: Masters, at_home: Run, file: Path, capsys: Out) -> None:
    file.write_text("kind: cron\nname: tick\nschedule: '@daily'\nrun: [serve]\n")
    assert at_home(*SUBMIT, "all", file) == 2
    assert "ann/tick is a cron" in capsys.readouterr().err


def test_a_file_with_mistakes_is_shown_as_for_one_cell(
    masters: Masters, at_home: Run, file: Path, capsys: Out
) -> None:
    file.write_text("name: web\n")
    assert at_home(*SUBMIT, "all", file) == 2
    assert "run is missing" in capsys.readouterr().err
    assert not submissions(masters)
