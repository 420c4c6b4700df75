"""Who may do what: users, groups, grants, tokens and invitations, and what follows for whoever asks."""

import msgspec
import pytest

from borgish.cell.access.authorization import authorize
from borgish.cell.access.commands import (
    AddGroup,
    AddUser,
    AdmitTokens,
    ChangeGrants,
    ChangeMembers,
    CreateToken,
    InviteMachine,
    NoteTokenUse,
    RemoveGroup,
    RemoveUser,
    RevokeInvitation,
    RevokeToken,
    SetSecret,
)
from borgish.cell.access.model import Invitation, Principal, Role, Token, bands_of, principal_of
from borgish.cell.command import Command
from borgish.cell.commands import (
    ApplyApp,
    JoinMachine,
    KillTasks,
    RemoveMachine,
    RestartTasks,
    ResumeCron,
    ResumeUpdate,
    RevokeMachine,
    RollBack,
    RunApp,
    RunCron,
    ScaleJob,
    SetCron,
    SetMachineUp,
    SubmitJob,
    UndoApp,
    UndoUpdate,
)
from borgish.cell.decide import decide
from borgish.cell.model import Cell, Snapshot
from borgish.cell.updates.rollback import RollbackTarget
from borgish.errors import Conflict, Forbidden, Invalid, NotFound
from borgish.join_token import digest_of
from borgish.spec.app import AppSpec, Document
from borgish.spec.cron import CronSpec
from borgish.spec.job import Container, JobSpec, Mount
from borgish.vocabulary import Band, State
from tests.unit.cell.crons import TO_COMPLETION, cron
from tests.unit.cell.test_decide import NOW, Desk, machine, spec

WALL = NOW.wall
BATCH, PRODUCTION, MONITORING = 100, 200, 300


def token(secret: str, user: str, role: Role = Role.USER, **more: object) -> Token:
    return msgspec.structs.replace(Token(digest_of(secret), user, role), **more)


def invitation(secret: str, machine: str = "", **more: object) -> Invitation:
    made = Invitation(digest_of(secret), machine, 1, WALL, "root", WALL + 1800)
    return msgspec.structs.replace(made, **more)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    for command in (AddUser("ann"), AddUser("bob"), AddGroup("web-team")):
        desk.do(command)
    desk.do(CreateToken(token("root", "root", Role.ADMIN)))
    return desk


def who(desk: Desk, secret: str, at: float = WALL) -> Principal | None:
    return principal_of(desk.cell.access, secret, at)


# Tokens


def test_a_token_stands_for_its_user_until_it_is_over(desk: Desk) -> None:
    desk.do(CreateToken(token("s", "ann", bands=(Band.BATCH,), expires_at=WALL + 10)))
    found = who(desk, "s")
    assert found == Principal("ann", "user", bands=(Band.BATCH,), token=digest_of("s"))
    assert who(desk, "s", WALL + 9) == found
    assert who(desk, "s", WALL + 10) is None
    assert who(desk, digest_of("s")) is None, "the digest is no token"


def test_a_revoked_token_stands_for_nobody_whatever_comes_back(desk: Desk) -> None:
    desk.do(CreateToken(token("s", "ann")))
    desk.do(SubmitJob(spec()))
    then = Cell(msgspec.msgpack.decode(msgspec.msgpack.encode(desk.cell.snapshot()), type=Snapshot))
    desk.do(RevokeToken(digest_of("s")[:12]))
    desk.do(RemoveUser("bob"))
    desk.do(ChangeGrants("ann", ("band:production",)))
    desk.do(KillTasks("ann/web"))
    command = RollBack(then.position, WALL)
    decision = decide(desk.cell, desk.observed, command, "root", NOW, RollbackTarget(then))
    before = msgspec.json.encode(desk.cell.access)
    desk.apply(decision, "RollBack")
    assert desk.states() == [State.PENDING, State.PENDING], "the job is back"
    assert msgspec.json.encode(desk.cell.access) == before
    assert who(desk, "s") is None


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (token("x", "eve"), NotFound),
        (token("x", "ann", Role.JOIN), Invalid),
        (token("x", "ann", expires_at=WALL), Invalid),
        (token("x", "ann", bands=(Band.PRODUCTION,)), Invalid),
        (token("x", "ann", Role.READER, bands=(Band.FREE,)), Invalid),
        (token("x", "root", Role.ADMIN, bands=(Band.FREE,)), Invalid),
        (token("x", "web-team", Role.READER), Invalid),
    ],
)
def test_tokens_that_cannot_be(desk: Desk, made: Token, error: type[Exception]) -> None:
    with pytest.raises(error):
        desk.do(CreateToken(made))


def test_an_admin_that_is_no_user_is_told_which_tokens_need_one(desk: Desk) -> None:
    assert "root" not in desk.cell.access.users
    with pytest.raises(NotFound, match="there is no user root") as caught:
        desk.do(CreateToken(token("x", "root")))
    assert (
        caught.value.hint == "add it first: `borgctl user add root`; only a token of the role user needs one"
    )
    desk.do(CreateToken(token("x", "root", Role.OPERATOR)))


def test_the_last_token_of_an_admin_stays(desk: Desk) -> None:
    desk.do(CreateToken(token("over", "eve", Role.ADMIN, expires_at=WALL + 1)))
    desk.do(AddUser("root"))
    desk.do(RevokeToken(digest_of("over")))
    for command in (RevokeToken(digest_of("root")), RemoveUser("root")):
        with pytest.raises(Conflict, match="last token of an admin"):
            desk.do(command)
    desk.do(CreateToken(token("other", "eve", Role.ADMIN)))
    desk.do(RevokeToken(digest_of("root")))
    assert who(desk, "root") is None


def test_a_token_is_named_by_enough_of_its_id(desk: Desk) -> None:
    desk.do(CreateToken(token("s", "ann")))
    for name in (digest_of("s")[:3], "f" * 12):
        with pytest.raises(NotFound):
            desk.do(RevokeToken(name))


def test_what_the_host_lets_in_is_taken_over_once(desk: Desk) -> None:
    given = AdmitTokens((token("h", "zoe"), token("j", "join", Role.JOIN)), (invitation("m", "m9"),))
    text, events = desk.do(given, "host")
    assert (events, "zoe (user)" in text, "zoe" in desk.cell.access.users) == (4, True, True)
    assert desk.do(given, "host")[1] == 0
    found = who(desk, "h")
    assert found is not None
    assert found.name == "zoe"


def test_the_last_use_is_of_tokens_that_are_there(desk: Desk) -> None:
    assert desk.do(NoteTokenUse({digest_of("root"): 5.0, "f" * 64: 6.0}))[1] == 1
    assert desk.cell.access.used == {digest_of("root"): 5.0}
    assert desk.do(NoteTokenUse({"f" * 64: 6.0}))[1] == 0


# Users and groups


def test_a_user_who_is_removed_is_in_no_group_and_has_no_token(desk: Desk) -> None:
    desk.do(ChangeMembers("web-team", add=("ann", "bob")))
    desk.do(CreateToken(token("s", "ann")))
    desk.do(SubmitJob(spec()))
    desk.do(RemoveUser("ann"))
    assert desk.cell.access.groups["web-team"].members == ("bob",)
    assert who(desk, "s") is None
    assert desk.states() == [State.PENDING, State.PENDING], "the job goes on"


def test_a_name_is_of_a_user_or_of_a_group(desk: Desk) -> None:
    for command in (AddUser("web-team"), AddGroup("ann")):
        with pytest.raises(Conflict):
            desk.do(command)
    assert desk.do(AddUser("ann"))[1] == desk.do(AddGroup("web-team"))[1] == 0


@pytest.mark.parametrize(
    "command",
    [
        RemoveUser("eve"),
        RemoveGroup("eve"),
        ChangeMembers("eve"),
        ChangeMembers("web-team", add=("eve",)),
        ChangeMembers("web-team", remove=("ann",)),
        ChangeGrants("eve", ("band:production",)),
        ChangeGrants("ann", remove=("band:production",)),
        RevokeInvitation("abcd"),
        RevokeMachine("m7"),
    ],
)
def test_what_is_not_there_is_named(desk: Desk, command: Command) -> None:
    with pytest.raises(NotFound):
        desk.do(command)


def test_monitoring_is_granted_to_nobody(desk: Desk) -> None:
    with pytest.raises(Invalid, match="monitoring cannot be granted"):
        desk.do(ChangeGrants("ann", ("band:monitoring",)))


@pytest.mark.parametrize(
    "grant", ["foo", "allow-exec", "capability:FOO", "capability:", "mount:srv", "mount:/srv/", "host-root:"]
)
def test_what_no_job_can_ask_for_is_granted_to_nobody(desk: Desk, grant: str) -> None:
    with pytest.raises(Invalid, match="that could be granted"):
        desk.do(ChangeGrants("ann", (grant,)))


def of_production(name: str, user: str = "ann") -> CronSpec:
    made = cron(name)
    return msgspec.structs.replace(
        made, job=msgspec.structs.replace(made.job, user=user, priority=PRODUCTION)
    )


def test_no_run_begins_by_itself_of_what_is_not_granted_any_more(desk: Desk) -> None:
    mounting = Container(mounts=(Mount("/srv", "/data"),))
    desk.do(ChangeGrants("ann", ("band:production", "mount:/srv")))
    desk.do(SetCron(of_production("nightly")))
    desk.do(SetCron(cron("plain")))
    desk.do(SetCron(msgspec.structs.replace(cron("mounts"), job=spec("mounts", container=mounting))))
    desk.do(ChangeGrants("ann", remove=("band:production",)))
    assert paused(desk) == {"ann/nightly"}
    assert not desk.cell.crons["ann/nightly"].next
    desk.do(ChangeGrants("ann", remove=("mount:/srv",)))
    assert paused(desk) == {"ann/nightly", "ann/mounts"}
    desk.do(ResumeCron("ann/nightly"))  # an admin may
    desk.do(ChangeGrants("ann", ("mount:/srv",)))
    assert paused(desk) == {"ann/mounts"}, "what is granted resumes nothing"


@pytest.mark.parametrize(("of_stage", "is_paused"), [(BATCH, False), (PRODUCTION, True)])
def test_a_cron_of_an_application_needs_what_its_stages_need(
    desk: Desk, of_stage: int, *, is_paused: bool
) -> None:
    stage = spec("load", restart=TO_COMPLETION, priority=of_stage)
    service = spec("front", priority=PRODUCTION)
    desk.do(ChangeGrants("ann", ("band:production",)))
    desk.do(ApplyApp(AppSpec("shop", "ann"), (Document(service), Document(stage))))
    desk.do(SetCron(CronSpec("0 2 * * *", JobSpec("nightly", "ann", 1, ()), app="shop")))
    desk.do(ChangeGrants("ann", remove=("band:production",)))
    assert (paused(desk) == {"ann/nightly"}) == is_paused, "no run has a copy of the service"


@pytest.mark.parametrize("command", [RunCron("ann/nightly"), ResumeCron("ann/nightly")])
def test_whoever_lost_a_grant_begins_no_runs_of_stages_that_need_it(desk: Desk, command: Command) -> None:
    of_app = CronSpec("0 2 * * *", JobSpec("nightly", "ann", 1, ()), app="shop")
    stage = Document(spec("load", restart=TO_COMPLETION, priority=PRODUCTION))
    desk.do(ChangeGrants("ann", ("band:production",)))
    desk.do(ApplyApp(AppSpec("shop", "ann"), (stage,)))
    desk.do(SetCron(of_app))
    asked = (command, SetCron(msgspec.structs.replace(of_app, keep=1)))
    for each in asked:
        authorize(desk.cell, each, Principal("ann", Role.USER))
    desk.do(ChangeGrants("ann", remove=("band:production",)))
    for each in asked:
        with pytest.raises(Forbidden, match="production"):
            authorize(desk.cell, each, Principal("ann", Role.USER))


def test_who_set_a_cron_and_whose_it_is_are_both_asked_for_the_grant(desk: Desk) -> None:
    desk.do(ChangeGrants("web-team", ("band:production",)))
    desk.do(ChangeGrants("ann", ("band:production",)))
    desk.do(SetCron(of_production("nightly", "web-team")))
    assert desk.cell.crons["web-team/nightly"].by == "ann"
    desk.do(ChangeGrants("web-team", remove=("band:production",)))
    assert paused(desk) == set()
    desk.do(ChangeGrants("ann", remove=("band:production",)))
    assert paused(desk) == {"web-team/nightly"}


@pytest.mark.parametrize(
    ("command", "owner"), [(RemoveUser("ann"), "ann"), (RemoveGroup("web-team"), "web-team")]
)
def test_crons_of_nobody_begin_no_runs(desk: Desk, command: Command, owner: str) -> None:
    of_owner = cron("nightly")
    desk.do(SetCron(msgspec.structs.replace(of_owner, job=spec("nightly", user=owner))))
    desk.do(SetSecret(owner, "db", b"sealed", 6))
    notes = decide(desk.cell, desk.observed, command, "root", NOW).notes
    assert any(f"the secrets of {owner} stay" in note and "db" in note for note in notes)
    desk.do(command)
    assert paused(desk) == {f"{owner}/nightly"}


def paused(desk: Desk) -> set[str]:
    return {key for key, each in desk.cell.crons.items() if each.paused}


# Bands: role x whose x what was granted


GRANTED: dict[str, tuple[Command, ...]] = {
    "nothing": (),
    "to her": (ChangeGrants("ann", ("band:production",)),),
    "to the group": (ChangeGrants("web-team", ("band:production",)),),
}
ALLOWED = {
    # (role, owner, granted): the priorities that may be
    (Role.USER, "ann", "nothing"): {BATCH},
    (Role.USER, "ann", "to her"): {BATCH, PRODUCTION},
    (Role.USER, "ann", "to the group"): {BATCH},
    (Role.USER, "web-team", "nothing"): {BATCH},
    (Role.USER, "web-team", "to her"): {BATCH, PRODUCTION},
    (Role.USER, "web-team", "to the group"): {BATCH, PRODUCTION},
    **{(Role.USER, "bob", granted): set[int]() for granted in GRANTED},
    **{
        (Role.ADMIN, owner, granted): {BATCH, PRODUCTION, MONITORING}
        for owner in ("ann", "web-team", "bob")
        for granted in GRANTED
    },
}


@pytest.mark.parametrize(("role", "owner", "granted"), ALLOWED)
def test_in_which_bands_whose_jobs_may_be(desk: Desk, role: Role, owner: str, granted: str) -> None:
    desk.do(ChangeMembers("web-team", add=("ann",)))
    for command in GRANTED[granted]:
        desk.do(command)
    desk.do(CreateToken(token("s", "ann", role)))
    asker = who(desk, "s")
    assert asker is not None
    found = set()
    for priority in (BATCH, PRODUCTION, MONITORING):
        job = spec(user=owner, priority=priority)
        if may(desk, SubmitJob(job), asker):
            found.add(priority)
    assert found == ALLOWED[role, owner, granted]


def may(desk: Desk, command: Command, asker: Principal) -> bool:
    try:
        authorize(desk.cell, command, asker)
    except Forbidden:
        return False
    return True


def test_a_token_for_some_bands_is_for_no_others(desk: Desk) -> None:
    for role in (Role.USER, Role.ADMIN):
        asker = Principal("ann", role, bands=(Band.FREE,))
        assert bands_of(desk.cell.access, asker, "ann") == {Band.FREE}
        assert not may(desk, SubmitJob(spec(priority=BATCH)), asker)
        assert may(desk, SubmitJob(spec(priority=0)), asker)


def test_what_a_job_asks_for_beyond_the_defaults_is_granted_by_name(desk: Desk) -> None:
    container = Container(capabilities=("NET_ADMIN",), mounts=(Mount("/srv/data", "/data", write=True),))
    command = SubmitJob(spec(container=container))
    ann, root = Principal("ann", Role.USER), Principal("root", Role.ADMIN)
    with pytest.raises(Forbidden, match="capability:NET_ADMIN and mount-write:/srv/data") as caught:
        authorize(desk.cell, command, ann)
    granted = caught.value.hint.partition("user grant ann ")[2].rstrip("`").split()
    assert may(desk, command, root)
    desk.do(ChangeGrants("ann", tuple(granted)))
    assert may(desk, command, ann)
    assert not may(desk, SubmitJob(spec(container=Container(user="0"))), ann)


def test_every_way_to_start_what_is_not_hers_or_too_high_is_closed(desk: Desk) -> None:
    """Whatever a command names that would start: by its own band, and by whose it is."""
    high = spec("high", priority=PRODUCTION)
    desk.do(SubmitJob(high))
    desk.do(SubmitJob(msgspec.structs.replace(high, run=("sleep", "2"))))
    app = ApplyApp(AppSpec("shop", "ann"), (Document(spec("front", priority=PRODUCTION)),))
    desk.do(app)
    desk.do(ApplyApp(AppSpec("shop", "ann"), (Document(spec("front", priority=PRODUCTION, tasks=3)),)))
    nightly = cron()
    nightly = msgspec.structs.replace(nightly, job=msgspec.structs.replace(nightly.job, priority=PRODUCTION))
    desk.do(SetCron(nightly))
    starting: list[Command] = [
        SubmitJob(high),
        ScaleJob("ann/high", 9),
        RestartTasks("ann/high"),
        UndoUpdate("ann/high"),
        ResumeUpdate("ann/high"),
        app,
        UndoApp("ann/shop"),
        RunApp("ann/shop"),
        SetCron(nightly),
        RunCron(nightly.key),
        ResumeCron(nightly.key),
    ]
    ann, bob, root = (Principal(n, r) for n, r in (("ann", "user"), ("bob", "user"), ("root", "admin")))
    for command in starting:
        assert not may(desk, command, ann), command
        assert not may(desk, command, bob), command
        assert may(desk, command, root), command
    assert may(desk, ScaleJob("ann/high", 1), ann), "fewer is no more"
    desk.do(ChangeGrants("ann", ("band:production",)))
    for command in starting:
        assert may(desk, command, ann), command
        assert not may(desk, command, bob), command


# Machines


def joins(name: str = "m2", secret: str = "", instance: str = "i2", *, known: bool = False) -> JoinMachine:
    return JoinMachine(machine(name), instance, known, digest_of(secret) if secret else "")


def test_an_invitation_lets_in_as_many_as_it_says(desk: Desk) -> None:
    desk.do(InviteMachine(invitation("s", uses=2)))
    assert desk.do(joins("m2", "s"))[1] == 2
    assert desk.do(joins("m3", "s"))[1] == 2
    with pytest.raises(Forbidden, match="was used"):
        desk.do(joins("m4", "s"))


def test_an_invitation_for_a_name_is_for_no_other(desk: Desk) -> None:
    desk.do(InviteMachine(invitation("s", "m2")))
    with pytest.raises(Forbidden, match="is for m2"):
        desk.do(joins("m3", "s"))
    desk.do(joins("m2", "s"))


def test_an_invitation_for_anybody_takes_nobodys_place(desk: Desk) -> None:
    desk.do(InviteMachine(invitation("s")))
    with pytest.raises(Conflict, match="machine invite m1"):
        desk.do(joins("m1", "s"))


def test_an_invitation_for_its_name_makes_older_credentials_worthless(desk: Desk) -> None:
    before = desk.cell.machines["m1"].admission
    desk.do(InviteMachine(invitation("s", "m1")))
    desk.do(joins("m1", "s"))
    assert desk.cell.machines["m1"].admission > before
    assert desk.cell.machines["m1"].admission == desk.cell.position


@pytest.mark.parametrize(
    "made",
    [
        invitation("s", uses=0),
        invitation("s", "m2", uses=2),
        invitation("s", expires_at=WALL),
        invitation("s", expires_at=WALL + 25 * 3600),
    ],
)
def test_invitations_that_cannot_be(desk: Desk, made: Invitation) -> None:
    with pytest.raises(Invalid):
        desk.do(InviteMachine(made))


def test_an_invitation_that_is_over_or_revoked_lets_nobody_in(desk: Desk) -> None:
    assert who(desk, "s") is None
    desk.do(InviteMachine(invitation("s", "m2")))
    assert who(desk, "s") == Principal("invitation", Role.JOIN, token=digest_of("s"), machine="m2")
    assert who(desk, "s", WALL + 1800) is None
    desk.do(RevokeInvitation(digest_of("s")[:12]))
    assert who(desk, "s") is None
    with pytest.raises(Forbidden):
        desk.do(joins("m2", "s"))


def test_a_revoked_machine_is_out_and_what_it_held_runs_elsewhere(desk: Desk) -> None:
    desk.submit_and_place(spec())
    text, _ = desk.do(RevokeMachine("m1"))
    assert text == "m1 is out of the cell, and 2 tasks of it run elsewhere"
    assert desk.states() == [State.PENDING, State.PENDING]
    assert not desk.cell.machines["m1"].up
    assert desk.do(SetMachineUp("m1"))[1] == 0, "whatever it says, it does not come back"
    desk.report()
    assert not desk.cell.machines["m1"].up
    with pytest.raises(Forbidden, match="m1 was revoked"):
        desk.do(joins("m1", known=True))
    assert desk.do(RevokeMachine("m1"))[1] == 0
    desk.do(InviteMachine(invitation("s", "m1")))
    desk.do(joins("m1", "s"))
    assert desk.cell.machines["m1"].up
    assert not desk.cell.machines["m1"].revoked_at


def test_a_revoked_machine_can_be_forgotten(desk: Desk) -> None:
    desk.do(RevokeMachine("m1"))
    desk.do(RemoveMachine("m1"))
    assert "m1" not in desk.cell.machines


@pytest.mark.parametrize("out", [RevokeMachine("m1"), RemoveMachine("m1")])
def test_who_is_out_comes_back_by_an_invitation_that_is_made_afterwards(desk: Desk, out: Command) -> None:
    desk.do(InviteMachine(invitation("before", "m1")))
    desk.do(InviteMachine(invitation("another", "m2")))
    desk.do(InviteMachine(invitation("any")))
    desk.do(out)
    with pytest.raises(Forbidden, match="was used, revoked, or its time is over"):
        desk.do(joins("m1", "before"))
    assert {it.machine for it in desk.cell.access.invitations.values()} == {"m2", ""}
    desk.do(InviteMachine(invitation("after", "m1")))
    desk.do(joins("m1", "after"))
    assert desk.cell.machines["m1"].up


def test_revoking_once_more_ends_an_invitation_made_since(desk: Desk) -> None:
    desk.do(RevokeMachine("m1"))
    desk.do(InviteMachine(invitation("since", "m1")))
    desk.do(RevokeMachine("m1"))
    with pytest.raises(Forbidden, match="was used, revoked"):
        desk.do(joins("m1", "since"))


def test_each_change_of_who_somebody_is_is_a_new_version(desk: Desk) -> None:
    seen = [desk.cell.access.version]
    for command in (
        CreateToken(token("s", "ann")),
        ChangeMembers("web-team", add=("ann",)),
        ChangeMembers("web-team", remove=("ann",)),
        RevokeToken(digest_of("s")),
        RemoveGroup("web-team"),
        RemoveUser("ann"),
    ):
        desk.do(command)
        seen.append(desk.cell.access.version)
    assert sorted(set(seen)) == seen
