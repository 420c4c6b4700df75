"""What ``fauxmaster pack`` reads, and how it tells what is wrong."""

from pathlib import Path

import pytest

from borgish.errors import Invalid, NotFound, TooLarge
from borgish.resources import Resources
from borgish.sim.pack_files import MIB, read_machines, read_tasks
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
    )
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
    monkeypatch.setattr("borgish.sim.pack_files.FILE_BYTES_MAX", 2**20)
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
    tasks = read_tasks(written(tmp_path, TASKS, *rows))
    assert len(tasks) == 1000
    assert len({id(task) for task in tasks}) == 2
    assert len({id(task.needs) for task in tasks}) == 1


def test_how_far_reading_has_come_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.sim.pack_files.NOTED_ROWS", 2)
    told: list[str] = []
    file = written(tmp_path, TASKS, *(f"j{n},0,ann,0,500,256,,," for n in range(5)))
    read_tasks(file, told.append)
    assert told == [f"{file}: 2 rows", f"{file}: 4 rows"]
