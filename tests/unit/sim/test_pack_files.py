"""What ``fauxmaster pack`` reads, and how it tells what is wrong."""

from pathlib import Path

import pytest

from borgish.errors import Conflict, Invalid, NotFound, Refused, TooLarge
from borgish.resources import Resources
from borgish.sim.pack.files import MIB, new_placements, read_machines, read_tasks
from borgish.spec.job import Constraint

MACHINES = "name,cpu_millis,ram_mib,devices,device_model"
TASKS = "job,index,user,priority,cpu_millis,ram_mib,devices,device_millis,constraints"


def written(folder: Path, *lines: str) -> Path:
    file = folder / "file.csv"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_machines_have_amounts_and_attributes(tmp_path: Path) -> None:
    file = written(tmp_path, f"{MACHINES},rack", "m0,4000,1024,2,T4,r1", "m1,1,0,,,")
    first, second = read_machines(file)
    assert first.capacity == Resources(4000, 1024 * MIB, devices={"gpu": 2000})
    assert first.attributes == {"device_model": "T4", "rack": "r1"}
    assert second.capacity == Resources(1, 0)
    assert second.attributes == {}


def test_tasks_have_needs_and_constraints(tmp_path: Path) -> None:
    tasks = read_tasks(
        written(
            tmp_path,
            TASKS,
            'web,0,ann,200,500,256,1,470,"rack in (r1, r2); device_model != T4"',
            "train,0,bob,0,1000,1024,8,1000,",
            "train,1,bob,0,1000,1024,2,,",
            "cron,7,bob,0,0,0,,,",
        )
    ).arrivals
    assert [task.key for task in tasks] == ["ann/web", "bob/train", "bob/train", "bob/cron"]
    assert [task.needs.devices for task in tasks] == [{"gpu": 470}, {"gpu": 8000}, {"gpu": 2000}, {}]
    assert tasks[0].constraints == (
        Constraint("rack", "in", ("r1", "r2")),
        Constraint("device_model", "!=", ("T4",)),
    )


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        ([], 0, "is empty"),
        ([MACHINES], 0, "has no row below its header"),
        (["name,cpu_millis,devices,device_model", "m,1,1,"], 1, "has no column ram_mib"),
        ([f"{MACHINES},name", "m,1,1,0,,n"], 1, "has the column 'name' more than once"),
        ([f"{MACHINES},two words", "m,1,1,0,,n"], 1, "'two words' cannot be an attribute"),
        ([MACHINES, "m,-1,1,0,"], 2, "cpu_millis: -1 is negative"),
        ([MACHINES, "m,1,1.5,0,"], 2, "ram_mib: '1.5' is not a whole number"),
        ([MACHINES, "m,,1,0,"], 2, "cpu_millis: is empty"),
        ([MACHINES, "m,1,1,65,"], 2, "devices: 65 is more than 64"),
        ([MACHINES, ",1,1,0,"], 2, "name: is empty"),
        ([MACHINES, "m,1,1,0,", "", "m,1,1,0,"], 4, "name: 'm' is there already, in line 2"),
        ([MACHINES, "m,1,1"], 2, "has 3 values where the header has 5 columns"),
        ([MACHINES, 'm,"1,1,0,'], 2, "is not CSV: unexpected end of data"),
    ],
)
def test_mistakes_in_machines(tmp_path: Path, lines: list[str], line: int, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        read_machines(written(tmp_path, *lines))
    assert [(each.message, each.line) for each in raised.value.mistakes] == [(message, line)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("j,0,ann,0,1,1,2,1470,", "device_millis: 1470 is more than one device"),
        ("j,0,ann,0,1,1,2,470,", "device_millis: 2 devices are taken whole, not 470 thousandths of each"),
        ("j,0,ann,0,1,1,1,0,", "device_millis: nothing of a device is asked for"),
        ("j,0,ann,0,1,1,0,470,", "device_millis: 470 thousandths of no device"),
        ("j,0,ann,400,1,1,0,0,", "priority: 400 is more than 399"),
        ("j,0,ann/x,0,1,1,0,0,", "user: 'ann/x' is not a name"),
        ("j,0,ann,0,1,1,0,0,rack = r1", "constraints: 'rack = r1' has '=' where '==' is meant"),
        ("one,0,ann,0,1,1,0,0,", "index: task 0 of ann/one is there already, in line 2"),
        ("one,1,ann,5,1,1,0,0,", "job: ann/one has another priority or other constraints in line 2"),
    ],
)
def test_mistakes_in_tasks(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        read_tasks(written(tmp_path, TASKS, "one,0,ann,0,1,1,0,0,", row))
    assert [(each.message, each.line) for each in raised.value.mistakes] == [(message, 3)]


def test_all_mistakes_are_told_and_no_more_than_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as raised:
        read_machines(written(tmp_path, MACHINES, *["m,-1,x,0,"] * 100))
    assert len(raised.value.mistakes) == 101
    assert raised.value.mistakes[-1].message == "and 199 more mistakes"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        read_tasks(tmp_path / "nothing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(Invalid) as raised:
        read_tasks(tmp_path / "binary")
    assert [each.message for each in raised.value.mistakes] == ["is not a text in UTF-8"]


def test_a_file_that_never_ends_is_refused_before_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.sim.pack.files.FILE_BYTES_MAX", 2**20)
    with pytest.raises(TooLarge, match="/dev/zero has more than 1MiB"):
        read_tasks(Path("/dev/zero"))


@pytest.mark.parametrize(
    "row", ["one,1,ann,5,1,1,0,0,", "two,0,ann,-1,1,1,0,0,", "two,0,ann,,1,1,0,0,", ",0,ann,0,1,1,0,0,"]
)
def test_mistakes_say_the_way_out(tmp_path: Path, row: str) -> None:
    with pytest.raises(Invalid) as raised:
        read_tasks(written(tmp_path, TASKS, "one,0,ann,0,1,1,0,0,", row))
    assert all(each.hint for each in raised.value.mistakes)


def test_tasks_that_are_alike_are_one_object(tmp_path: Path) -> None:
    rows = [f"j{n % 2},{n // 2},ann,0,500,256,,," for n in range(1000)]
    tasks = read_tasks(written(tmp_path, TASKS, *rows)).arrivals
    assert len(tasks) == 1000
    assert len({id(task) for task in tasks}) == 2
    assert len({id(task.needs) for task in tasks}) == 1


def test_how_far_reading_has_come_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.sim.pack.files.NOTED_ROWS", 2)
    told: list[str] = []
    file = written(tmp_path, TASKS, *(f"j{n},0,ann,0,500,256,,," for n in range(5)))
    read_tasks(file, told.append)
    assert told == [f"{file}: 2 rows", f"{file}: 4 rows"]


TIMED = f"{TASKS},creation_time,deletion_time"


def test_times_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    file = written(tmp_path, TIMED, "a,3,ann,0,1,1,0,0,,10,70", "a,1,ann,0,1,1,0,0,,10,")
    tasks = read_tasks(file, with_times=True)
    assert tasks.times is not None
    assert (list(tasks.times.comes), list(tasks.times.leaves)) == ([10, 10], [70, float("inf")])
    assert list(tasks.indexes) == [3, 1]
    assert read_tasks(file).times is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("b,0,ann,0,1,1,0,0,,9,", "creation_time: 9 is before that of the row above, 10"),
        ("b,0,ann,0,1,1,0,0,,11,10", "deletion_time: 10 is before 11, when the task comes"),
        ("b,0,ann,0,1,1,0,0,,,12", "creation_time: is empty"),
        ("b,0,ann,0,1,1,0,0,,11,soon", "deletion_time: 'soon' is not a whole number"),
    ],
)
def test_mistakes_in_times(tmp_path: Path, row: str, message: str) -> None:
    file = written(tmp_path, TIMED, "a,0,ann,0,1,1,0,0,,10,70", row)
    with pytest.raises(Invalid) as raised:
        read_tasks(file, with_times=True)
    assert (raised.value.mistakes[0].message, raised.value.mistakes[0].line) == (message, 3)
    assert raised.value.mistakes[0].hint


def test_tasks_without_times_cannot_leave(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as raised:
        read_tasks(written(tmp_path, TASKS, "a,0,ann,0,1,1,0,0,"), with_times=True)
    assert [each.message for each in raised.value.mistakes] == [
        "has no column creation_time",
        "has no column deletion_time",
    ]


def test_placements_are_there_once_all_are_written(tmp_path: Path) -> None:
    (task,) = read_tasks(written(tmp_path, TASKS, "j,4,ann,0,1,1,2,,")).arrivals
    file = tmp_path / "P.csv"
    with new_placements(file) as writer:
        writer.write(task, 4, "m1", ("gpu0", "gpu1"))
        writer.write(task, 5, "", ())
        assert not file.exists()
    assert file.read_text() == "job,index,user,machine,devices\nj,4,ann,m1,gpu0;gpu1\nj,5,ann,,\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["P.csv", "file.csv"]


def test_a_run_that_breaks_off_leaves_no_placements(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_placements(tmp_path / "P.csv"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_placements_are_written_over_nothing(tmp_path: Path) -> None:
    file = tmp_path / "P.csv"
    file.write_text("mine")
    with pytest.raises(Conflict, match="already exists"), new_placements(file):
        pytest.fail("it is said before the work begins")
    file.unlink()
    with pytest.raises(Conflict, match="already exists"), new_placements(file):
        file.write_text("of somebody who was faster")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["of somebody who was faster"]


@pytest.mark.parametrize(
    ("name", "error", "told"),
    [
        ("none/P.csv", NotFound, "none: there is no such folder"),
        ("P" * 300, Conflict, "cannot be written: File name too long"),
    ],
)
def test_where_placements_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, name: str, error: type[Refused], told: str
) -> None:
    with pytest.raises(error, match=told) as raised, new_placements(tmp_path / name):
        pytest.fail("it is said before the work begins")
    assert raised.value.hint
