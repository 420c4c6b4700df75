"""Every command x every level of room in the store: what is refused before it is decided."""

import itertools
from typing import Any, get_type_hints

import pytest

from borgish.cell.command import Command
from borgish.cell.free_space import (
    AMPLE,
    FULL_SHARE,
    Floor,
    FreeSpace,
    Level,
    check_space,
    free_space_of,
    refusing,
    store_full,
)
from borgish.errors import StoreFull
from tests.sentences import check_refusal

MIB = 1024**2
FLOOR = 512 * MIB
ROOMS = {
    Level.AMPLE: AMPLE,
    Level.LOW: FreeSpace(Level.LOW, 300 * MIB, FLOOR),
    Level.FULL: FreeSpace(Level.FULL, 20 * MIB, FLOOR),
}
COMMANDS = {each.__name__: each for each in Command.__subclasses__()}
# Written out, so that a command that is added has to be put into one of these.
ASK_FOR_MORE = {
    *("SubmitJob", "ScaleJob", "RestartTasks", "RollBack", "SetQuota", "SetBudget", "UndoUpdate"),
    *("ApplyApp", "UndoApp", "RunApp"),
    *("SetCron", "RunCron", "FireCron"),
}
STOP_OR_HEAL = {
    *("BeginEpoch", "KillTasks", "EvictTasks", "ForgetJob", "PlaceTasks", "PromisePlaces", "AdvanceRollouts"),
    *("JoinMachine", "CordonMachine", "UncordonMachine", "TaintMachine", "UntaintMachine", "RemoveQuota"),
    *("RemoveMachine", "SetMachineDown", "SetMachineUp", "LoseMachine", "ReleaseMachine", "PauseRollouts"),
    "EndLeases",
    *("BeginHandovers", "HandOverTasks", "EndIncoming", "EndHandovers"),
    *("DrainMachines", "UndrainMachines", "MaintainMachines", "CancelMaintenance", "TurnWindows"),
    *("RemoveBudget", "FreezeCell", "UnfreezeCell"),
    *("AddUser", "RemoveUser", "AddGroup", "RemoveGroup", "ChangeMembers", "ChangeGrants"),
    *("CreateToken", "RevokeToken", "AdmitTokens", "NoteTokenUse", "NoteCertificate"),
    *("InviteMachine", "RevokeInvitation", "RevokeMachine"),
    *("SetSecret", "RemoveSecret"),
    *("KillApp", "RemoveApp"),
    *("EndWaits", "FailWaits", "EndChildren"),
    *("HoldJob", "ReleaseJob", "ForgetFailures", "EndFailedJob"),
    *("RemoveCron", "PauseCron", "ResumeCron"),
    *("FinishRollouts", "FailUpdate", "PauseUpdate", "ResumeUpdate"),
}
REPORTS = {"Observe"}


def allowed(level: Level, name: str) -> bool:
    """What should be: at the lowest level only a report is looked at, which writes nothing by itself."""
    match level:
        case Level.AMPLE:
            return True
        case Level.LOW:
            return name not in ASK_FOR_MORE
        case Level.FULL:
            return name in REPORTS


def test_the_table_has_every_command() -> None:
    assert COMMANDS.keys() == ASK_FOR_MORE | STOP_OR_HEAL | REPORTS


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("level", list(Level))
def test_what_is_refused_at_which_level(level: Level, name: str) -> None:
    made: Any = COMMANDS[name](**dict.fromkeys(get_type_hints(COMMANDS[name])))
    if allowed(level, name):
        check_space(ROOMS[level], made)
        return
    with pytest.raises(StoreFull) as caught:
        check_space(ROOMS[level], made)
    assert caught.value.status == 507
    assert "Make room on that disk" in caught.value.hint


def test_what_is_refused_is_told_with_the_amounts() -> None:
    assert refusing(AMPLE) == ""
    assert refusing(ROOMS[Level.LOW]) == (
        "new work is refused: the database's disk has 300MiB free, less than 512MiB"
    )
    assert refusing(ROOMS[Level.FULL]) == (
        "all changes are refused: the database's disk has 20MiB free, less than 128MiB"
    )


def test_what_can_still_be_done_is_said_while_anything_can() -> None:
    low, full = store_full(ROOMS[Level.LOW]), store_full(ROOMS[Level.FULL])
    check_refusal(low, "The store is full", "300MiB free", "less than 512MiB")
    check_refusal(full, "The store is full", "20MiB free", "less than 128MiB")
    assert low.hint.endswith("and tasks run on; jobs can be killed and machines removed meanwhile")
    assert full.hint.endswith("and tasks run on")


@pytest.mark.parametrize(
    ("free_bytes", "level"),
    [
        (FLOOR, Level.AMPLE),
        (FLOOR - 1, Level.LOW),
        (int(FULL_SHARE * FLOOR), Level.LOW),
        (int(FULL_SHARE * FLOOR) - 1, Level.FULL),
        (0, Level.FULL),
    ],
)
def test_the_two_floors(free_bytes: int, level: Level) -> None:
    assert free_space_of(free_bytes, FLOOR) == FreeSpace(level, free_bytes, FLOOR)


@pytest.mark.parametrize("before", list(Level))
def test_a_level_is_left_for_a_better_one_with_some_room_to_spare(before: Level) -> None:
    """Near a floor the level does not change all the time, wherever it begins."""
    for floor in (FLOOR, int(FULL_SHARE * FLOOR)):
        level, changes = before, 0
        for free in itertools.chain.from_iterable([(floor - 1, floor, floor + 1)] * 5):
            after = free_space_of(free, FLOOR, level).level
            changes += after is not level
            level = after
        assert changes <= 1
    assert free_space_of(2 * FLOOR, FLOOR, before).level is Level.AMPLE


@pytest.mark.parametrize(
    ("floor", "total_bytes", "floor_bytes"),
    [
        (Floor(), 1000 * 1024 * MIB, 512 * MIB),
        (Floor(), 1024 * MIB, int(51.2 * MIB)),
        (Floor(free_mib=0), 1024 * MIB, 0),
        (Floor(free_percent=0), 1024 * MIB, 0),
    ],
)
def test_the_floor_is_the_smaller_of_the_two(floor: Floor, total_bytes: int, floor_bytes: int) -> None:
    assert floor.bytes_of(total_bytes) == floor_bytes


def test_without_a_floor_there_is_always_room() -> None:
    assert free_space_of(0, 0).level is Level.AMPLE
