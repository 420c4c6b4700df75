"""Every command is decided and every event is applied: one that is forgotten ends a master that meets it."""

import typing

from borgish.cell import apply
from borgish.cell.command import Command
from borgish.cell.decide import COMMANDS
from borgish.cell.events import AnyEvent
from borgish.cell.generations import DECIDED_ABOUT_SEVERAL, DECIDED_BY_PEOPLE

# Written out, so that a command that is added has to be put into one of these, or into ``cell.generations``.
OF_BORGISH = {
    "TurnWindows",
    *("BeginEpoch", "EvictTasks", "ForgetJob", "PlaceTasks", "PromisePlaces", "AdvanceRollouts"),
    *("PauseRollouts", "JoinMachine", "SetMachineDown", "LoseMachine", "SetMachineUp", "ReleaseMachine"),
    *("EndWaits", "FailWaits", "EndChildren"),
    *("Observe", "EndLeases", "HoldJob", "ReleaseJob", "ForgetFailures", "EndFailedJob"),
    "FireCron",
    *("FailUpdate", "FinishRollouts"),
    *("AdmitTokens", "NoteTokenUse", "NoteCertificate"),
    *("BeginHandovers", "HandOverTasks", "EndIncoming", "EndHandovers"),
}
OF_THE_CELL = {"RollBack", "FreezeCell", "UnfreezeCell"}
"""They decide about many things, each of which has its generation by the event, or about the cell."""
OF_ACCESS = {
    *("AddUser", "RemoveUser", "AddGroup", "RemoveGroup", "ChangeMembers", "ChangeGrants"),
    *("CreateToken", "RevokeToken", "InviteMachine", "RevokeInvitation", "RevokeMachine"),
    *("SetSecret", "RemoveSecret"),
}
"""What they are about has no generation: nobody edits a token, and what is revoked twice is revoked."""


def test_every_command_is_decided() -> None:
    assert set(COMMANDS) == set(Command.__subclasses__())


def test_every_event_is_applied() -> None:
    assert set(apply._APPLY) == set(typing.get_args(AnyEvent))


def test_every_command_is_known_to_be_somebodys_decision_or_nobodys() -> None:
    decided = DECIDED_BY_PEOPLE.keys() | DECIDED_ABOUT_SEVERAL
    assert {command.__name__ for command in COMMANDS} == decided | OF_BORGISH | OF_THE_CELL | OF_ACCESS
