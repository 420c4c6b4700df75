"""Packing experiments on a few machines, through the real scheduler."""

import json
import sys
from pathlib import Path

import pytest

from borgish.cell.model import Machine
from borgish.errors import Conflict
from borgish.resources import Resources
from borgish.scheduler.policies import POLICIES
from borgish.sim import fauxmaster
from borgish.sim.pack.arrive import arrive
from borgish.sim.pack.command import show_compacted
from borgish.sim.pack.compact import Work, compact, packed_tightly, percentile, with_soft_constraints
from borgish.sim.pack.packing import Arrival, PackedCell, Times, machine_of, specs_of
from borgish.spec.job import Constraint, Preference

GIB = 1024**3
MACHINES = "name,cpu_millis,ram_mib,devices,device_model,rack\n" + "".join(
    f"m{number},8000,16384,2,{'T4' if number % 2 else 'G2'},r{number % 3}\n" for number in range(6)
)
TASKS = "job,index,user,priority,cpu_millis,ram_mib,devices,device_millis,constraints\n" + "".join(
    f"j{number % 4},{number},u{number % 2},0,"
    f"{500 + 500 * (number % 3)},2048,1,{(250, 500, 1000)[number % 3]},"
    f"{'device_model == T4' if number % 4 == 1 else ''}\n"
    for number in range(24)
)


def plain(name: str, cpu: int = 1000, devices: int = 0, user: str = "ann", **more: object) -> Arrival:
    needs = Resources(cpu, GIB, devices={"gpu": devices} if devices else {})
    return Arrival(user, name, 0, needs, **more)  # type: ignore[arg-type]


def machines_of(count: int, cpu: int = 4000, devices: int = 0) -> list:  # type: ignore[type-arg]
    capacity = Resources(cpu, 8 * GIB, devices={"gpu": devices} if devices else {})
    return [machine_of(f"m{number}", capacity, {}) for number in range(count)]


def test_what_arrives_is_placed_until_nothing_is_left() -> None:
    arrived = arrive(machines_of(2), [plain(f"j{n}") for n in range(10)], "hybrid", 0)
    assert (arrived.measured, arrived.tasks, arrived.placed, arrived.pending) == ("cpu", 10, 8, {"cpu": 2})
    assert [step.requested_percent for step in arrived.steps] == [12, 25, 38, 50, 62, 75, 88, 100, 112, 125]
    assert [step.allocated for step in arrived.steps][-4:] == [0.875, 1.0, 1.0, 1.0]


def test_devices_are_measured_where_there_are_any() -> None:
    arrived = arrive(
        machines_of(1, devices=1000), [plain("a", devices=700), plain("b", devices=400)], "fgd", 0
    )
    assert (arrived.measured, arrived.pending) == ("devices", {"device gpu": 1})
    assert [step.allocated for step in arrived.steps] == [0.7, 0.7]


def test_nobody_is_preempted() -> None:
    tasks = [plain("low", 4000), Arrival("ann", "high", 300, Resources(4000, GIB))]
    assert arrive(machines_of(1), tasks, "hybrid", 0).pending == {"cpu": 1}


def test_tasks_of_a_job_may_differ() -> None:
    tasks = [plain("j", 1000), plain("j", 3000), plain("j", 1000)]
    spec = specs_of(tasks)["ann/j"]
    assert [spec.needs(index).cpu_millis for index in range(3)] == [1000, 3000, 1000]
    assert arrive(machines_of(1), tasks, "best_fit", 0).placed == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_packs_and_no_device_is_given_twice(policy: str) -> None:
    tasks = [plain(f"j{n}", 500, (300, 500, 1000, 2000)[n % 4]) for n in range(30)]
    cell = PackedCell(machines_of(4, 8000, 4000), specs_of(tasks), policy, 1)
    used: dict[tuple[str, str], int] = {}
    for task in tasks:
        for placement in cell.add(task.key).placements:
            for device in placement.devices[0]:
                key = (placement.machines[0], device)
                used[key] = used.get(key, 0) + min(1000, task.needs.devices["gpu"])
    assert used
    assert max(used.values()) <= 1000


def test_tasks_that_leave_make_room() -> None:
    """One machine holds four of the eight that come, one a second; each stays for four seconds."""
    times = Times(range(8), [second + 4 for second in range(8)])
    arrived = arrive(machines_of(1), [plain(f"j{n}") for n in range(8)], "hybrid", 0, times=times)
    assert (arrived.placed, arrived.left, arrived.pending) == (8, 4, {})
    assert [step.requested_percent for step in arrived.steps] == [25, 50, 75, 100]
    assert arrived.steps[-1].allocated == 1.0


def test_what_found_no_place_asks_until_it_leaves() -> None:
    """The second finds no place and leaves before the third comes; the first stays."""
    times = Times((0, 1, 2), (float("inf"), 2, float("inf")))
    tasks = [plain("a", 3000), plain("b", 2000), plain("c", 1000)]
    arrived = arrive(machines_of(1), tasks, "hybrid", 0, times=times)
    assert (arrived.placed, arrived.left, arrived.pending) == (2, 0, {"cpu": 1})
    assert [step.requested_percent for step in arrived.steps] == [75, 100, 125]


def test_a_device_that_was_left_is_given_again() -> None:
    told: list[tuple[int, str, tuple[str, ...]]] = []
    tasks = [plain(f"j{n}", devices=1000) for n in range(4)]
    times = Times((0, 1, 2, 3), (2, 9, 3, 9))
    arrive(
        machines_of(1, devices=2000),
        tasks,
        "hybrid",
        0,
        times=times,
        on_placement=lambda *task: told.append(task),
    )
    assert [(number, machine) for number, machine, _ in told] == [(n, "m0") for n in range(4)]
    (first,), (second,), (third,), (fourth,) = (devices for _, _, devices in told)
    assert first == third == fourth != second


def test_compaction_finds_the_smallest_cell() -> None:
    compacted = compact(machines_of(10), [plain(f"j{n}") for n in range(16)], "hybrid", 0, trials=3)
    assert compacted.needed == compacted.bounds == (4, 4, 4)
    assert (compacted.machines, compacted.clones, compacted.result) == (10, 1, 4)


def test_a_cell_that_is_too_small_is_cloned() -> None:
    compacted = compact(machines_of(2), [plain(f"j{n}") for n in range(20)], "hybrid", 0, trials=1)
    assert (compacted.machines, compacted.clones, compacted.needed) == (6, 3, (5,))


def test_what_never_fits_is_told() -> None:
    many = [plain(f"j{n}", 5000) for n in range(9)]
    with pytest.raises(Conflict, match="do not fit on 16 machines, 8 times the cell"):
        compact(machines_of(2), many, "hybrid", 0)


def test_a_few_picky_tasks_may_be_left_over() -> None:
    # One of 600 tasks goes on a single machine only; it does not keep the cell large.
    machines = [*machines_of(300), machine_of("huge", Resources(64_000, 64 * GIB), {})]
    tasks = [plain("picky", 60_000), *(plain(f"j{n}", 2000) for n in range(599))]
    compacted = compact(machines, tasks, "hybrid", 0, trials=4)
    assert min(compacted.needed) < 301
    assert compacted.result <= 300


def with_large(large: int) -> Work:
    """Return the work of 599 small tasks and one that few machines take; of 300, so many do."""
    machines = [*machines_of(300 - large), *machines_of_more(large)]
    small = [Arrival("ann", f"j{n}", 0, Resources(100, 2**20)) for n in range(599)]
    tasks = [plain("large", 60_000), *small]
    return Work.of(machines, tasks, picky_machines=5)


def machines_of_more(count: int) -> list[Machine]:
    return [machine_of(f"large{n}", Resources(64_000, 64 * GIB), {}) for n in range(count)]


def test_the_tasks_that_decide_are_told() -> None:
    """One task that six machines take keeps the cell as large as it is until one of them comes."""
    compacted = packed_tightly(with_large(6), "hybrid", 0, 2)
    (decider,) = compacted.decided_by
    assert (decider.task, decider.tasks, decider.machines) == ("ann/large/0", 1, 6)
    assert "  ann/large/0 (60 cpu, 1GiB ram): 6 of 300 machines take it when empty" in show_compacted(
        compacted
    )
    assert compacted.result > compacted.bounds[0]


def test_what_may_wait_does_not_decide() -> None:
    work = with_large(6)
    compacted = packed_tightly(Work(work.machines, work._jobs, picky_machines=6), "hybrid", 0, 2)
    assert [each.task for each in compacted.decided_by if "large" in each.task] == []


def test_no_task_may_wait_where_the_share_is_nothing() -> None:
    work = with_large(5)
    strict = Work(work.machines, work._jobs, pending_share=0.0)
    lax, tight = (packed_tightly(each, "hybrid", 0, 2) for each in (work, strict))
    assert lax.result < tight.result
    (decider,) = tight.decided_by
    assert decider.task == "ann/large/0"


def test_sums_decide_where_all_fits_that_has_room() -> None:
    compacted = packed_tightly(Work.of(machines_of(10), [plain(f"j{n}") for n in range(16)]), "hybrid", 0, 3)
    assert compacted.decided_by == ()
    assert "decided by the sums of what the tasks ask for" in show_compacted(compacted)


def test_progress_is_told_by_trial() -> None:
    told: list[str] = []
    packed_tightly(with_large(6), "hybrid", 0, 2, told.append)
    assert any(words.startswith("trial 2 of 2: ") for words in told)


def test_the_percentile_is_the_tenth_of_eleven() -> None:
    assert percentile(range(1, 12)) == 10
    assert percentile([7]) == 7


def test_hard_constraints_of_very_large_jobs_are_softened() -> None:
    rack = Constraint("rack", "==", ("r1",))
    spec = specs_of([plain("j", constraints=(rack,)) for _ in range(6)])["ann/j"]
    assert with_soft_constraints(spec, 12) is spec
    assert (with_soft_constraints(spec, 11).constraints, with_soft_constraints(spec, 11).prefer) == (
        (),
        (Preference(rack),),
    )


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "M.csv").write_text(MACHINES)
    (tmp_path / "T.csv").write_text(TASKS)
    return ["--machines", str(tmp_path / "M.csv"), "--tasks", str(tmp_path / "T.csv")]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["fauxmaster", "pack", *arguments])
    fauxmaster.main()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("experiment", ["arrive", "compact"])
def test_the_same_seed_gives_the_same_bytes(
    files: list[str],
    policy: str,
    experiment: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [*files, "--policy", policy, "--experiment", experiment, "--seed", "3", "--trials", "2"]
    for option in ([], ["--json"]):
        run(monkeypatch, *asked, *option)
        first = capsys.readouterr().out
        run(monkeypatch, *asked, *option)
        assert capsys.readouterr().out == first != ""
    assert json.loads(first)["policy"] == policy


def test_arrivals_are_shown_with_why_some_are_pending(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, *files, "--policy", "fgd")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "requested and allocated devices, allocated cpu and ram, in % of the cell"
    assert lines[-2:] == ["placed 22 of 24 tasks, 2 pending:", "        2 device gpu"]


TIMES = [f"{second},{second + 9}" for second in range(24)]


def with_times(files: list[str]) -> None:
    """Give the tasks columns of when they come and leave."""
    header, *rows = TASKS.splitlines()
    timed = [f"{row},{times}" for row, times in zip(rows, TIMES, strict=True)]
    Path(files[3]).write_text("\n".join([f"{header},creation_time,deletion_time", *timed]) + "\n")


def test_tasks_leave_where_that_is_asked_for(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_times(files)
    run(monkeypatch, *files, "--policy", "fgd", "--departures")
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "placed 24 of 24 tasks, of which 15 left before the last one came, 0 pending"
    run(monkeypatch, *files, "--policy", "fgd")
    assert "placed 22 of 24 tasks, 2 pending:" in capsys.readouterr().out


@pytest.mark.parametrize("experiment", ["arrive", "compact"])
def test_placements_are_a_row_for_each_task(
    files: list[str], experiment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(files[1]).with_name("P.csv")
    asked = [*files, "--experiment", experiment, "--trials", "3", "--placements", str(file)]
    run(monkeypatch, *asked, "--json")
    found = json.loads(capsys.readouterr().out)
    rows = [line.split(",") for line in file.read_text().splitlines()]
    tasks = [line.split(",") for line in TASKS.splitlines()]
    assert [row[:3] for row in rows] == [task[:3] for task in tasks]
    placed = [row for row in rows[1:] if row[3]]
    machines = {row[3] for row in placed}
    if experiment == "arrive":
        assert len(placed) == found["placed"] == 22
        assert machines == {f"m{number}" for number in range(6)}
    else:
        assert len(placed) == found["tasks"] == 24
        assert len(machines) <= found["result"]
    assert all(row[4].startswith("gpu") for row in placed)
    assert [row[4] for row in rows[1:] if not row[3]] == [""] * (24 - len(placed))
    first = file.read_bytes()
    file.unlink()
    run(monkeypatch, *asked)
    assert file.read_bytes() == first


def test_placements_that_are_there_stay(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *files, "--placements", files[1])
    assert ended.value.code == 1
    assert f"error: {files[1]} already exists\nhint: " in capsys.readouterr().err
    assert Path(files[1]).read_text() == MACHINES


def test_how_far_it_has_come_is_shown_on_a_terminal_and_taken_away(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, *files)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "12")
    run(monkeypatch, *files)
    assert capsys.readouterr().err == "\r\x1b[K0 of 24 tas\r\x1b[K"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--experiment", "compact", "--departures"], "error: compact packs all tasks at once"),
        (["--policy", "tetris"], "error: tetris is unknown\nhint: there are hybrid, best_fit"),
        (["--experiment", "shrink"], "error: shrink is unknown\nhint: there are arrive, compact"),
        (["--seed", "-1"], "-1 is not a whole number from 0"),
        (["--trials", "0"], "0 is not a whole number from 1"),
        (["--pending-share", "101"], "101 is not a share in percent, like 0.2"),
        (["--pending-share", "few"], "few is not a share in percent, like 0.2"),
        (["--picky-machines", "-1"], "-1 is not a whole number of machines"),
    ],
)
def test_wrong_words(
    files: list[str],
    options: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *files, *options)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_mistakes_of_both_files_are_told_with_their_lines(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, line in ((files[1], "m9,-1,1,0,,r0\n"), (files[3], "j,x,ann,0,1,1,0,0,\n")):
        with Path(file).open("a") as opened:
            opened.write(line)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *files)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"{files[1]}:8:1: cpu_millis: -1 is negative" in told
    assert f"{files[3]}:26:1: index: 'x' is not a whole number" in told
