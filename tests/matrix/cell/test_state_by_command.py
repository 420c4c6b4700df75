"""Every situation of a task x everything that may be asked: what becomes of it, by ``decide`` and ``apply``.

After Aurora's TaskStateMachine, whose test walks all of its cases. ``MATRIX`` has every case in full, so that
neither the table of the lifecycle nor the code is held to itself; whoever changes a case reads what it means.
"""

import copy
from collections.abc import Callable, Iterator

import msgspec
import pytest

from borgish.cell.access.commands import (
    AddGroup,
    AddUser,
    AdmitTokens,
    ChangeGrants,
    ChangeMembers,
    CreateToken,
    InviteMachine,
    NoteCertificate,
    NoteTokenUse,
    RemoveGroup,
    RemoveSecret,
    RemoveUser,
    RevokeInvitation,
    RevokeToken,
    SetSecret,
)
from borgish.cell.access.model import Invitation, Role, Token
from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    AdvanceRollouts,
    ApplyApp,
    BeginEpoch,
    BeginHandovers,
    CancelMaintenance,
    CordonMachine,
    DrainMachines,
    EndChildren,
    EndFailedJob,
    EndHandovers,
    EndIncoming,
    EndLeases,
    EndWaits,
    EvictTasks,
    FailUpdate,
    FailWaits,
    FinishRollouts,
    FireCron,
    ForgetFailures,
    ForgetJob,
    FreezeCell,
    HandOverTasks,
    HoldJob,
    JoinMachine,
    KillApp,
    KillTasks,
    LoseMachine,
    MaintainMachines,
    Observe,
    PauseCron,
    PauseRollouts,
    PauseUpdate,
    PlaceTasks,
    PromisePlaces,
    ReleaseJob,
    ReleaseMachine,
    RemoveApp,
    RemoveBudget,
    RemoveCron,
    RemoveMachine,
    RemoveQuota,
    RestartTasks,
    ResumeCron,
    ResumeUpdate,
    RevokeMachine,
    RollBack,
    RunApp,
    RunCron,
    ScaleJob,
    SeenAttempt,
    SetBudget,
    SetCron,
    SetMachineDown,
    SetMachineUp,
    SetQuota,
    SubmitJob,
    TaintMachine,
    TurnWindows,
    UncordonMachine,
    UndoApp,
    UndoUpdate,
    UndrainMachines,
    UnfreezeCell,
    UntaintMachine,
)
from borgish.cell.decide import COMMANDS, decide
from borgish.cell.events import AnyEvent, Entry, TasksEnded
from borgish.cell.invariants import violations
from borgish.cell.limits.budgets import Budget
from borgish.cell.model import Cell, Snapshot
from borgish.cell.observed import Observed, record_report, watch
from borgish.cell.updates.rollback import RollbackTarget
from borgish.clock import Now
from borgish.errors import Refused
from borgish.resources import Resources
from borgish.spec.app import AppSpec, Document
from borgish.spec.job import After, Constraint, JobSpec, Restart, Update
from borgish.spec.shares import Share
from borgish.vocabulary import Band, Ending, Eviction, HandoverCause, Phase, RestartPolicy, State
from tests.sentences import check_refusal, check_sentence
from tests.unit.cell.crons import cron
from tests.unit.cell.lived import machine, spec

NOW = Now(1000.0, 1000.0)
JOB, TASK = "ann/web", 1
"""The task is the last of two, and both are in the same situation."""


PASTS: list[tuple[RollBack, Cell]] = []
"""Each rollback that was made here, and the cell of its position."""


class Desk:
    """A cell in which the task comes into a situation, one entry for each command."""

    def __init__(self) -> None:
        self.cell = Cell(Snapshot("matrix"))
        self.observed = Observed()
        for name in ("m1", "m2"):
            self.do(JoinMachine(machine(name), name, known=False))
        watch(self.observed, ("m1", "m2"), Now(0.0, 0.0))

    def do(self, command: Command) -> None:
        """Decide and apply a command. Raises Refused."""
        target = next((RollbackTarget(past) for given, past in PASTS if given is command), None)
        decision = decide(self.cell, self.observed, command, "ann", NOW, target)
        for text in (decision.text, *decision.notes):
            check_sentence(text)
        named = [getattr(command, field, None) for field in ("job", "machine")]
        assert decision.subject in ([each for each in named if isinstance(each, str)] or [decision.subject])
        self.enter(decision.events)
        if isinstance(command, Observe) and command.machine in self.cell.machines:
            record_report(self.cell, self.observed, command, NOW)

    def enter(self, events: tuple[AnyEvent, ...]) -> None:
        """Apply events, as they are read from the journal. A copy that applies them becomes the same."""
        if not events:
            return
        entry = Entry(self.cell.position + 1, NOW.wall, self.cell.timeline, 1, "ann", "test", events)
        again = copy.deepcopy(self.cell)
        apply_entry(self.cell, entry)
        apply_entry(again, msgspec.json.decode(msgspec.json.encode(entry), type=Entry))
        assert msgspec.json.encode(again.snapshot()) == msgspec.json.encode(self.cell.snapshot())

    def report(
        self, phase: Phase = Phase.UP, *, ended: Ending | None = None, boot: str = "b1", port: int = 0
    ) -> Observe:
        """Return a report of the task by m1, about its current attempt."""
        code = 0 if ended is Ending.FINISH else 1
        attempt = SeenAttempt(
            f"{JOB}/{TASK}", self.attempt(), phase, ended=ended, exit_code=code, port_in_use=port, restarts=1
        )
        return Observe("m1", boot, "m1", (attempt,))

    def report_incoming(self, *, ended: Ending | None = None) -> Observe:
        """Return a report of m2 about the task's incoming attempt."""
        seen = SeenAttempt(f"{JOB}/{TASK}", self.incoming(), Phase.UP, ended=ended, exit_code=1)
        return Observe("m2", "b1", "m2", (seen,))

    def incoming(self) -> int:
        """Return the id of the task's incoming attempt; 0 where it has none."""
        handover = self.cell.handover(JOB, TASK)
        return handover.attempt if handover is not None else 0

    def attempt(self) -> int:
        """Return the id of the task's last attempt; 0 where it has none."""
        task = self.cell.task(f"{JOB}/{TASK}")
        return task.attempt if task is not None else 0


def then(*commands: Command) -> Cell:
    """Return a cell with the same history as all of them, in which only this was done."""
    desk = Desk()
    for command in commands:
        desk.do(command)
    return desk.cell


ONCE = spec(tasks=2, priority=100, restart=Restart(RestartPolicy.ON_FAILURE))
"""It runs to completion, so that its results count."""
SUBMIT = SubmitJob(ONCE)
IN_ORDER = SubmitJob(msgspec.structs.replace(ONCE, after=(After("ann/db"),)))
OTHER = SubmitJob(msgspec.structs.replace(ONCE, run=("sleep", "2")))
SERVICE = SubmitJob(spec(tasks=2, priority=100, update=Update(handover=True)))
PLACE = PlaceTasks(JOB, (0, 1), ("m1", "m1"))
HAND = BeginHandovers(JOB, (0, 1), HandoverCause.DRAIN, "m1 is to be empty")
PLACE_INCOMING = PlaceTasks(JOB, (0, 1), ("m2", "m2"))
KILL = KillTasks(JOB)


def roll_back(*commands: Command, hurried: bool = False) -> RollBack:
    """Return the command to go back to when this was done."""
    past = then(*commands)
    command = RollBack(past.position, NOW.wall, hurried=hurried, max_affected=100)
    PASTS.append((command, past))
    return command


# Situations


def by(*commands: Command) -> Callable[[Desk], None]:
    """Return what brings the task into the situation that it has after these commands."""

    def live(desk: Desk) -> None:
        for command in commands:
            desk.do(command)

    return live


def reported(phase: Phase = Phase.UP, ended: Ending | None = None) -> Callable[[Desk], None]:
    """Return what brings both tasks into the situation after such a report."""

    def live(desk: Desk) -> None:
        by(SUBMIT, PLACE)(desk)
        code = 0 if ended is Ending.FINISH else 1
        both = [SeenAttempt(f"{JOB}/{i}", desk.attempt(), phase, ended=ended, exit_code=code) for i in (0, 1)]
        desk.do(Observe("m1", "b1", "m1", tuple(both)))

    return live


def up_before(*commands: Command, last: Command) -> Callable[[Desk], None]:
    """Return the same, where both tasks are up before the last command."""

    def live(desk: Desk) -> None:
        by(*commands)(desk)
        both = [SeenAttempt(f"{JOB}/{i}", desk.attempt(), Phase.UP) for i in (0, 1)]
        desk.do(Observe("m1", "b1", "m1", tuple(both)))
        desk.do(last)

    return live


def lost(desk: Desk) -> None:
    """No command does this; older journals have it."""
    by(SUBMIT, PLACE)(desk)
    desk.enter((TasksEnded(JOB, (0, 1), Ending.LOST, ("", "")),))


DOWN = (SetMachineDown("m1", "silent"),)
ENDING = (SUBMIT, PLACE, KILL, RestartTasks(JOB, hurried=True), PLACE)
TO_KILLED = roll_back(SUBMIT, PLACE, KILL)
EVICT = EvictTasks(JOB, (0, 1), Eviction.VANISHED)

SITUATIONS: dict[str, Callable[[Desk], None]] = {
    # Some positions, so that what others went through is of its past.
    "none": by(CordonMachine("m2"), UncordonMachine("m2"), CordonMachine("m2"), UncordonMachine("m2")),
    "pend": by(SUBMIT),
    "defr": by(IN_ORDER),  # waits for another job, which is not there
    "prom": by(SUBMIT, PromisePlaces(JOB, (0, 1), ("m1", "m1"))),  # has a place promised
    "wait": by(SUBMIT, PLACE, *DOWN, LoseMachine("m1", "silent", 1.0)),  # its lost attempt may end yet
    "run": by(SUBMIT, PLACE),  # was not reported yet
    "up": reported(),
    "sick": reported(Phase.BACKING_OFF),
    "down": by(SUBMIT, PLACE, *DOWN),  # its machine is
    "lag": up_before(
        SUBMIT, PLACE, KILL, OTHER, PLACE, last=roll_back(SUBMIT, PLACE)
    ),  # runs, and is to run an older version
    "lagD": up_before(*ENDING, last=TO_KILLED),  # runs, and is to end
    "lagP": by(*ENDING, TO_KILLED, EVICT),  # waits, and is to end
    "lag-": up_before(SUBMIT, PLACE, last=roll_back()),  # runs, and its job is to go
    "upd": up_before(SUBMIT, PLACE, last=OTHER),  # runs, and is to run a newer version
    "hand": by(SERVICE, PLACE, HAND),  # runs, is to be replaced, and no incoming attempt has a machine
    "inco": by(SERVICE, PLACE, HAND, PLACE_INCOMING),  # runs, and its incoming attempt is on m2
    "fin": reported(ended=Ending.FINISH),
    "fail": reported(ended=Ending.FAIL),
    "kill": by(SUBMIT, PLACE, KILL),
    "lost": lost,
}


# What is asked


def evict(*, by: str = "", indexes: tuple[int, ...] = (TASK,)) -> EvictTasks:
    """Return the command to evict the task, for another one if that is named."""
    return EvictTasks(JOB, indexes, Eviction.PREEMPTED if by else Eviction.VANISHED, preemptor=by)


def applied(job: JobSpec) -> ApplyApp:
    """Return the command to apply an application of this job alone."""
    return ApplyApp(AppSpec("site", "ann"), (Document(job, ("name", "run", "tasks", "priority", "restart")),))


def gone(desk: Desk) -> Observe:
    """m1 no longer has it."""
    return Observe("m1", "b1", "m1", (), ((f"{JOB}/{TASK}", desk.attempt()),))


def twice(desk: Desk) -> Observe:
    """A report that contradicts itself: it has ended, and m1 no longer has it."""
    ended = desk.report(ended=Ending.FINISH)
    return msgspec.structs.replace(ended, gone=((f"{JOB}/{TASK}", desk.attempt()),))


LIMITS = Resources(1000, 1024**3)
ASKED: dict[str, Command | Callable[[Desk], Command]] = {
    "submit": SUBMIT,
    "submit other": OTHER,
    "apply": applied(ONCE),
    "apply other": applied(OTHER.spec),
    "undo app": UndoApp("ann/site"),
    "run app": RunApp("ann/site"),
    "kill app": KillApp("ann/site"),
    "remove app": RemoveApp("ann/site"),
    "scale up": ScaleJob(JOB, 3),
    "scale down": ScaleJob(JOB, 1),
    "kill task": KillTasks(JOB, (TASK,)),
    "kill job": KillTasks(JOB),
    "kill no task": KillTasks(JOB, (7,)),
    "restart task": RestartTasks(JOB, (TASK,), hurried=True),
    "restart job": RestartTasks(JOB, hurried=True),
    "restart few": RestartTasks(JOB),
    "undo": UndoUpdate(JOB),
    "pause update": PauseUpdate(JOB),
    "resume": ResumeUpdate(JOB),
    "promote": ResumeUpdate(JOB, promote=True),
    "fail": FailUpdate(JOB, "it crashes"),
    "finish": FinishRollouts({JOB: "complete"}),
    "forget": ForgetJob(JOB),
    "end leases": EndLeases(JOB, (TASK,), (3,)),
    "hold": HoldJob(JOB, "it crashes"),
    "let go": ReleaseJob(JOB),
    "start": EndWaits({JOB: "ann/db is there"}),
    "give up": FailWaits({JOB: "waited 10m for ann/db"}),
    "end child": EndChildren({JOB: "ann/p"}),
    "back to defr": roll_back(IN_ORDER),
    "in order": IN_ORDER,
    "forgive": ForgetFailures(JOB, (TASK,)),
    "end failed": EndFailedJob(JOB),
    "replace": BeginHandovers(JOB, (TASK,), HandoverCause.DRAIN, "m1 is to be empty"),
    "hand over": lambda desk: HandOverTasks(JOB, (TASK,), (desk.incoming(),)),
    "end incoming": lambda desk: EndIncoming(JOB, (TASK,), (desk.incoming(),), "stuck", has_failed=True),
    "end handover": EndHandovers(JOB, (TASK,), "m1 is not to be empty"),
    "incoming up": lambda desk: desk.report_incoming(),
    "incoming fail": lambda desk: desk.report_incoming(ended=Ending.FAIL),
    "incoming gone": lambda desk: Observe("m2", "b1", "m2", (), ((f"{JOB}/{TASK}", desk.incoming()),)),
    "incoming lost": LoseMachine("m2", "silent", 1.0),
    "place": PlaceTasks(JOB, (TASK,), ("m2",)),
    "place twice": PlaceTasks(JOB, (TASK, TASK), ("m1", "m2")),
    "place nowhere": PlaceTasks(JOB, (TASK,), ("m9",)),
    "promise": PromisePlaces(JOB, (TASK,), ("m2",)),
    "unpromise": PromisePlaces(JOB, (TASK,), ("",)),
    "evict": evict(),
    "evict no task": evict(indexes=(-1,)),
    "evict twice": evict(indexes=(TASK, TASK)),
    "preempt": evict(by="ann/high/0"),
    "preempt low": evict(by="ann/low/0"),
    "report up": lambda desk: desk.report(Phase.UP),
    "report finish": lambda desk: desk.report(ended=Ending.FINISH),
    "report fail": lambda desk: desk.report(ended=Ending.FAIL),
    "report kill": lambda desk: desk.report(ended=Ending.KILL),
    "report lost": lambda desk: desk.report(ended=Ending.LOST),
    "report stuck": lambda desk: desk.report(Phase.UNKILLABLE),
    "report port": lambda desk: desk.report(Phase.STARTING, port=80),
    "report boot": lambda desk: desk.report(Phase.STARTING, boot="b2"),
    "report gone": gone,
    "report twice": twice,
    "down": SetMachineDown("m1", "silent"),
    "release": ReleaseMachine("m1"),
    "up": SetMachineUp("m1"),
    "lose": LoseMachine("m1", "silent", 1.0),
    "remove": RemoveMachine("m1"),
    "join": JoinMachine(machine("m1", port=7501), "m1", known=True),
    "cordon": CordonMachine("m1"),
    "uncordon": UncordonMachine("m1"),
    "taint": TaintMachine("m1", "gpu"),
    "untaint": UntaintMachine("m1", "gpu"),
    "drain": DrainMachines(("m1",)),
    "drain, forced": DrainMachines(where="machine in (m1, m2)", force=True, max_affected=2),
    "undrain": UndrainMachines(("m1",)),
    "maintain": MaintainMachines(("m1",), begins=900.0, ends=2000.0),
    "cancel": CancelMaintenance(("m1",)),
    "turn": TurnWindows(("m1",)),
    "back to none": roll_back(),
    "back to pend": roll_back(SUBMIT),
    "back to run": roll_back(SUBMIT, PLACE),
    "back to kill": roll_back(SUBMIT, PLACE, KILL),
    "back, hurried": roll_back(SUBMIT, PLACE, hurried=True),
    "go on": AdvanceRollouts({JOB: (TASK,)}),
    "go on all": AdvanceRollouts({JOB: (0, 1)}),
    "pause": PauseRollouts({JOB: "it crashes"}),
    "set quota": SetQuota("ann", Band.BATCH, LIMITS),
    "remove quota": RemoveQuota("ann", Band.BATCH),
    "set budget": SetBudget(Budget("web", (Constraint("app", "==", ("web",)),), Share())),
    "delete budget": RemoveBudget("web"),
    "set cron": SetCron(cron()),
    "remove cron": RemoveCron("ann/nightly"),
    "pause cron": PauseCron("ann/nightly"),
    "resume cron": ResumeCron("ann/nightly"),
    "run cron": RunCron("ann/nightly"),
    "fire": FireCron("ann/nightly", 2e9),
    "freeze": FreezeCell("a holiday"),
    "add user": AddUser("bob"),
    "remove user": RemoveUser("ann"),
    "add group": AddGroup("web-team"),
    "remove group": RemoveGroup("web-team"),
    "members": ChangeMembers("web-team"),
    "grants": ChangeGrants("ann", ("band:production",)),
    "token": CreateToken(Token("a" * 64, "ann", Role.READER)),
    "revoke token": RevokeToken("aaaa"),
    "admit tokens": AdmitTokens((Token("b" * 64, "ann", Role.USER),)),
    "note use": NoteTokenUse({"a" * 64: 1.0}),
    "warn": NoteCertificate("machine", 2000.0, "m1"),
    "invite": InviteMachine(Invitation("c" * 64, expires_at=2000.0)),
    "uninvite": RevokeInvitation("cccc"),
    "set secret": SetSecret("ann", "db", b"sealed", 6),
    "no secret": RemoveSecret("ann", "db"),
    "revoke m1": RevokeMachine("m1"),
    "unfreeze": UnfreezeCell(),
    "begin": BeginEpoch(2, "me"),
}

MATRIX = """
                none pend defr prom wait run  up   sick down lag  lagD lagP lag- upd  hand inco fin  fail kill lost
submit        | P    P    P    P    P    R    R    R    R    R    R    P    !    R    R    R    P    P    P    P
submit other  | P    P    P    P    P    R    R    R    R    R    R    P    !    R    R    R    P    P    P    P
apply         | P    P    D    P    P    R    R    R    R    R    R    P    !    R    R    R    F    X    P    L
apply other   | P    P    D    P    P    R    R    R    R    R    R    P    !    R    R    R    P    P    P    P
undo app      | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
run app       | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
kill app      | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
remove app    | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
scale up      | !    P    D    P    P    R    R    R    R    R    R    P    !    R    H    H    !    !    !    !
scale down    | !    .    .    .    .    .    .    .    .    .    .    .    !    .    .    .    !    !    !    !
kill task     | !    K    K    K    K    K    K    K    K    K    K    K    K    K    K    K    F    X    K    L
kill job      | !    K    K    K    K    K    K    K    K    K    K    K    K    K    K    K    F    X    K    L
kill no task  | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
restart task  | !    P    P    P    P    P    P    P    P    P    !    !    !    P    P    I    P    P    P    P
restart job   | !    P    P    P    P    P    P    P    P    P    !    !    !    P    P    I    P    P    P    P
restart few   | !    P    P    P    P    R    R    R    R    R    !    !    !    R    H    H    P    P    P    P
undo          | !    !    !    !    !    !    !    !    !    R    !    !    !    R    !    !    !    !    !    !
pause update  | !    !    !    !    !    !    !    !    !    !    !    !    !    R    !    !    !    !    !    !
resume        | !    !    !    !    !    !    !    !    !    !    !    !    !    R    !    !    !    !    !    !
promote       | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
fail          | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
finish        | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
forget        | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    .    .    .    .
end leases    | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
hold          | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
let go        | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
forgive       | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
end failed    | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
replace       | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
hand over     | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    I    F    X    K    L
end incoming  | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
end handover  | !    P    D    P    P    R    R    R    R    R    R    P    R    R    R    R    F    X    K    L
incoming up   | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
incoming fail | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
incoming gone | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
incoming lost | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
place         | .    R    D    R    R    R    R    R    R    R    R    R    R    R    H    H    F    X    K    L
place twice   | .    !    D    !    R    R    R    R    R    R    R    !    R    R    H    H    F    X    K    L
place nowhere | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
promise       | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
unpromise     | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
evict         | !    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
evict no task | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
evict twice   | !    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
preempt       | !    P    D    P    P    R    P    P    P    P    P    P    P    P    H    H    F    X    K    L
preempt low   | !    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
report up     | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
report finish | .    P    D    P    F    F    F    F    F    F    F    P    F    F    F    F    F    X    K    L
report fail   | .    P    D    P    X    X    X    X    X    X    X    P    X    X    X    X    F    X    K    L
report kill   | .    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
report lost   | .    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
report stuck  | .    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
report port   | .    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
report boot   | .    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
report gone   | .    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
report twice  | .    P    D    P    F    !    !    !    !    !    !    P    !    !    !    !    F    X    K    L
down          | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
release       | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
up            | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
lose          | .    P    D    P    P    R    R    R    P    R    R    P    R    R    H    H    F    X    K    L
remove        | .    P    D    P    P    !    !    !    P    !    !    P    !    !    !    !    F    X    K    L
join          | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
cordon        | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
uncordon      | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
taint         | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
untaint       | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
drain         | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
drain, forced | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
undrain       | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
maintain      | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
cancel        | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
turn          | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
back to none  | .    .    .    .    .    R    R    R    R    R    R    .    R    R    R    R    .    .    .    .
back to pend  | P    P    P    P    P    R    R    R    R    R    R    P    R    R    R    R    F    X    P    P
back to run   | P    P    P    P    P    R    R    R    R    R    R    P    R    R    R    R    F    X    P    P
back to kill  | K    K    K    K    K    R    R    R    R    R    R    K    R    R    R    R    F    X    K    K
back, hurried | P    P    P    P    P    R    R    R    R    R    R    P    R    R    R    R    F    X    P    P
go on         | .    P    D    P    P    R    R    R    R    P    K    K    K    P    H    H    F    X    K    L
go on all     | .    P    D    P    P    R    R    R    R    R    R    K    .    R    H    H    F    X    K    L
pause         | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
set quota     | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
remove quota  | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
set budget    | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
delete budget | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
set cron      | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
remove cron   | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
pause cron    | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
resume cron   | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
run cron      | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
fire          | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
freeze        | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
add user      | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
remove user   | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
add group     | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
remove group  | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
members       | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
grants        | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
token         | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
revoke token  | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
admit tokens  | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
note use      | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
warn          | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
invite        | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
uninvite      | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
set secret    | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
no secret     | !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !    !
revoke m1     | .    P    D    P    P    P    P    P    P    P    P    P    P    P    P    I    F    X    K    L
unfreeze      | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
begin         | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
start         | .    P    P    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
give up       | .    P    X    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
end child     | .    P    D    P    P    R    R    R    R    R    R    P    R    R    H    H    F    X    K    L
back to defr  | D    D    D    D    D    R    R    R    R    R    R    D    R    R    R    R    F    X    D    D
in order      | D    P    D    P    P    R    R    R    R    R    R    P    !    R    R    R    D    D    D    D
"""  # noqa: E501
"""What the task is after it: P pending, D pending and not to be
placed before other jobs are there, R running, H running with a handover under way, I running as its
incoming attempt; F finished, X failed, K killed, L lost; ``.`` no more, or
not yet; ``!`` it was refused, in words."""

_CODES = {Ending.FINISH: "F", Ending.FAIL: "X", Ending.KILL: "K", Ending.LOST: "L"}


def code(cell: Cell, incoming: int) -> str:
    """Return the letter of what the task is; ``incoming`` was its incoming attempt, 0 for none."""
    task = cell.task(f"{JOB}/{TASK}")
    if task is None:
        return "."
    if task.state is State.DEAD:
        assert task.ending is not None
        return _CODES[task.ending]
    if TASK in cell.deferred.get(JOB, ()):
        return "D"
    if task.state is State.RUNNING and cell.handover(JOB, TASK) is not None:
        return "H"
    return "I" if incoming and task.attempt == incoming else task.state[0].upper()


def outcome(situation: str, asked: str) -> str:
    """Return what becomes of the task. Whatever is asked, the cell is sound then."""
    desk = Desk()
    SITUATIONS[situation](desk)
    for name, priority in (("high", 150), ("low", 50)):
        desk.do(SubmitJob(spec(name, tasks=1, priority=priority)))
    assert violations(desk.cell) == []
    before, incoming = msgspec.json.encode(desk.cell.snapshot()), desk.incoming()
    given = ASKED[asked]
    try:
        desk.do(given if isinstance(given, Command) else given(desk))
    except Refused as refused:
        check_refusal(refused)
        assert msgspec.json.encode(desk.cell.snapshot()) == before
        return "!"
    assert violations(desk.cell) == []
    return code(desk.cell, incoming)


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield situation, what is asked, and what is to become of it."""
    header, *lines = MATRIX.strip().splitlines()
    for line in lines:
        asked, _, expected = line.partition(" |")
        yield from (
            (name, asked.strip(), to) for name, to in zip(header.split(), expected.split(), strict=True)
        )


def test_the_matrix_has_every_situation_and_every_command() -> None:
    assert {(situation, asked) for situation, asked, _ in rows()} == {
        (situation, asked) for situation in SITUATIONS for asked in ASKED
    }
    desk = Desk()
    given = {type(each if isinstance(each, Command) else each(desk)) for each in ASKED.values()}
    assert given == set(COMMANDS)


@pytest.mark.parametrize("asked", ASKED)
def test_what_becomes_of_a_task(asked: str) -> None:
    wrong = {
        situation: f"{found}, not {expected}"
        for situation, each, expected in rows()
        if each == asked and (found := outcome(situation, asked)) != expected
    }
    assert wrong == {}
