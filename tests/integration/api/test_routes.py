"""Every route through the real client: what it answers when all is well, and what to bad requests."""

import hashlib

import msgspec
import pytest

from borgish.api import streams
from borgish.cell.commands import (
    CancelMaintenance,
    CordonMachine,
    DrainMachines,
    KillTasks,
    MaintainMachines,
    RemoveMachine,
    RestartTasks,
    ScaleJob,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UndrainMachines,
    UntaintMachine,
)
from borgish.client import Client, quoted
from borgish.errors import (
    BorgishError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooLarge,
    Unreachable,
)
from borgish.resources import Resources
from borgish.vocabulary import BODY_BYTES_MAX, NAME_HINT, State, TaintEffect
from borgish.wire.api import (
    Accepted,
    CheckpointView,
    CordonRequest,
    DrainRequest,
    EventList,
    IndexesRequest,
    JobDetail,
    JobList,
    MachineList,
    MachineView,
    MaintainRequest,
    ScaleRequest,
    StatusView,
    SummaryView,
    TaintRequest,
    TaskList,
    TaskView,
    UndrainRequest,
    UntaintRequest,
    WhoamiView,
    WhyView,
)
from borgish.wire.api_past import (
    CheckpointDetail,
    CheckpointList,
    CheckpointRequest,
    CheckpointVerdict,
    Imported,
)
from borgish.wire.link import Facts, JoinReply, JoinRequest, LogWanted
from tests.integration.api.fakes import RunningApi, until
from tests.unit.api.cells import NOW

JOB = b"name: hello\ntasks: 2\nrun: [sleep, '60']\n"


def submit(client: Client, text: bytes = JOB, request_id: str = "", user: str = "") -> Accepted:
    return client.post("/v1/jobs", text, Accepted, request_id, {"user": user}, "application/yaml")


def test_status_and_summary(admin: Client) -> None:
    status = admin.get("/v1/status", None, StatusView)
    assert (status.cell, status.up, status.store) == ("test", 2, "memory")
    summary = admin.get("/v1/summary", None, SummaryView)
    assert summary.status == status
    assert [event.position for event in summary.events] == [1, 2, 3, 4, 5]


def test_metrics(admin: Client) -> None:
    text = admin.raw("GET", "/metrics").decode()
    assert 'borgish_tasks{state="running"} 3.0' in text
    assert "borgish_journal_position 20.0" in text


def test_submit_takes_the_text_of_a_job_file(api: RunningApi, admin: Client) -> None:
    accepted = submit(admin, user="ann")
    assert accepted.position == 21
    (asked,) = api.master.asked
    assert isinstance(asked.command, SubmitJob)
    assert (asked.command.spec.key, asked.actor) == ("ann/hello", "root")


def test_a_job_without_a_user_is_of_who_asks(api: RunningApi) -> None:
    submit(api.client("bgt_ann"))
    assert isinstance(command := api.master.asked[0].command, SubmitJob)
    assert command.spec.user == "ann"


@pytest.mark.parametrize(
    ("token", "name", "role"),
    [("bgt_admin", "root", "admin"), ("bgt_ann", "ann", "user"), ("bgt_reader", "eve", "reader")],
)
def test_a_token_tells_whom_it_stands_for(api: RunningApi, token: str, name: str, role: str) -> None:
    assert api.client(token).get("/v1/whoami", None, WhoamiView) == WhoamiView(name, role)


@pytest.mark.parametrize(("text", "user"), [(JOB, "bob"), (b"user: bob\n" + JOB, "")])
def test_a_user_submits_only_in_its_own_name(api: RunningApi, text: bytes, user: str) -> None:
    with pytest.raises(Forbidden, match="bob"):
        submit(api.client("bgt_ann"), text, user=user)
    assert api.master.asked == []


def test_every_mistake_in_a_job_file_comes_back_with_its_line(api: RunningApi, admin: Client) -> None:
    with pytest.raises(Invalid) as caught:
        submit(admin, b"name: Hello!\ntasks: -1\nrun: [x]\nwrong: 1\n", user="ann")
    assert {mistake.line for mistake in caught.value.mistakes} >= {1, 2, 4}
    assert api.master.asked == []


def test_a_body_that_is_not_text_is_refused(admin: Client) -> None:
    with pytest.raises(Invalid):
        submit(admin, b"\xff\xfe\x00", user="ann")


def test_jobs_are_listed_in_pieces(admin: Client) -> None:
    first = admin.get("/v1/jobs", {"limit": 2}, JobList)
    assert ([job.name for job in first.items], first.page.next) == (["ann/sum", "ann/web"], "ann/web")
    rest = admin.get("/v1/jobs", {"limit": 2, "after": first.page.next}, JobList)
    assert ([job.name for job in rest.items], rest.page.next) == (["bob/db"], "")


def test_a_job_is_shown_with_what_its_reader_may_see(api: RunningApi) -> None:
    path = quoted("jobs", "ann", "web")
    for token, password in (("bgt_admin", "hunter2"), ("bgt_ann", "hunter2"), ("bgt_bob", "***")):
        detail = api.client(token).get(path, None, JobDetail)
        assert detail.spec.env == {"PASSWORD": password}
        assert detail.job.up == 1
        assert len(detail.refusals) == 1


def test_kill_restart_and_scale_become_commands(api: RunningApi, admin: Client) -> None:
    path = quoted("jobs", "ann", "web")
    admin.post(f"{path}/kill", IndexesRequest((1, 2)), Accepted)
    admin.post(f"{path}/restart", None, Accepted)
    admin.post(f"{path}/scale", ScaleRequest(7), Accepted)
    assert [asked.command for asked in api.master.asked] == [
        KillTasks("ann/web", (1, 2)),
        RestartTasks("ann/web", None),
        ScaleJob("ann/web", 7),
    ]


def test_what_is_asked_of_machines_becomes_commands(api: RunningApi, admin: Client) -> None:
    admin.post(quoted("machines", "m1", "cordon"), CordonRequest("disk"), Accepted)
    admin.post(quoted("machines", "m1", "uncordon"), None, Accepted)
    admin.post(quoted("machines", "m1", "taint"), TaintRequest("a", "b", TaintEffect.EVICT), Accepted)
    admin.post(quoted("machines", "m1", "untaint"), UntaintRequest("a"), Accepted)
    admin.post(quoted("machines", "m1", "remove"), None, Accepted)
    assert [asked.command for asked in api.master.asked] == [
        CordonMachine("m1", "disk"),
        UncordonMachine("m1"),
        TaintMachine("m1", "a", "b", TaintEffect.EVICT),
        UntaintMachine("m1", "a"),
        RemoveMachine("m1"),
    ]


def test_drains_and_windows_become_commands_about_all_that_are_meant(api: RunningApi, admin: Client) -> None:
    admin.post("/v1/drains", DrainRequest(("m1", "m2"), "", "disk", 60.0), Accepted)
    forced = DrainRequest(where="rack == r2", force=True, max_affected=3)
    admin.post("/v1/drains", forced, Accepted)
    admin.post("/v1/drains/delete", UndrainRequest(("m1",)), Accepted)
    when = {"begins": "2999-01-01T00:00:00Z", "ends": "2999-01-01T02:00:00Z"}
    admin.post("/v1/windows", MaintainRequest(machines=("m1",), **when, lead_seconds=5.0), Accepted)
    admin.post("/v1/windows/delete", UndrainRequest(where="rack == r2"), Accepted)
    begins = 32472144000.0
    assert [asked.command for asked in api.master.asked] == [
        DrainMachines(("m1", "m2"), "", "disk", 60.0),
        DrainMachines(where="rack == r2", force=True, max_affected=3),
        UndrainMachines(("m1",)),
        MaintainMachines(("m1",), "", begins, begins + 7200.0, 5.0),
        CancelMaintenance(where="rack == r2"),
    ]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/drains", {}, "either machines or where"),
        ("/v1/drains", {"machines": ["m1"], "where": "rack == r2"}, "either machines or where"),
        ("/v1/drains", {"machines": ["m1"], "reason": "x" * 501}, "longer than 500"),
        ("/v1/drains", {"machines": ["m1"], "reason": "\0"}, "NUL"),
        ("/v1/drains", {"machines": ["m1"], "deadline_seconds": -1}, "outside 0 to"),
        ("/v1/drains", {"machines": ["m1"], "max_affected": -1}, "must not be negative"),
        ("/v1/windows", {"machines": ["m1"], "begins": "soon", "ends": "2h"}, "begins: 'soon' is neither"),
        ("/v1/windows", {"machines": ["m1"], "begins": "", "ends": "2h"}, "a beginning and an end"),
        ("/v1/windows", {"machines": ["m1"]}, "missing required field"),
    ],
)
def test_what_cannot_be_a_drain_is_refused(admin: Client, path: str, body: object, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        admin.post(path, body, Accepted)
    assert words in f"{caught.value} {caught.value.mistakes}"


def test_a_request_id_goes_on_with_a_digest_of_the_request(api: RunningApi, admin: Client) -> None:
    path = quoted("jobs", "ann", "web") + "/scale"
    first = admin.post(path, ScaleRequest(7), Accepted, "same-id")
    again = admin.post(path, ScaleRequest(7), Accepted, "same-id")
    assert again == Accepted(first.position, first.subject, first.text, replayed=True)
    with pytest.raises(Conflict):
        admin.post(path, ScaleRequest(8), Accepted, "same-id")
    with pytest.raises(Conflict):
        admin.post(quoted("jobs", "bob", "db") + "/scale", ScaleRequest(7), Accepted, "same-id")
    (asked,) = api.master.asked
    assert (asked.request_id, len(asked.digest)) == ("same-id", hashlib.sha256().digest_size * 2)


def test_the_client_makes_a_request_id_of_its_own(api: RunningApi, admin: Client) -> None:
    submit(admin, user="ann")
    submit(admin, user="ann")
    first, second = (asked.request_id for asked in api.master.asked)
    assert first
    assert first != second


@pytest.mark.parametrize("request_id", ["x" * 129, "with space", "a/b"])
def test_a_request_id_out_of_bounds_is_refused(admin: Client, request_id: str) -> None:
    with pytest.raises(Invalid, match="Idempotency-Key"):
        submit(admin, user="ann", request_id=request_id)


def test_tasks_are_listed_by_job_machine_and_state(admin: Client) -> None:
    def names(**params: str | int) -> list[str]:
        return [task.name for task in admin.get("/v1/tasks", params, TaskList).items]

    assert names(job="ann/web") == [f"ann/web/{i}" for i in range(4)]
    assert names(machine="m1") == ["ann/web/0", "ann/web/1"]
    assert names(machine="m1", job="bob/db") == []
    assert names(state="dead") == ["ann/sum/0", "ann/sum/1", "ann/web/3"]
    assert len(names()) == 7


def test_tasks_are_listed_in_pieces(admin: Client) -> None:
    seen: list[str] = []
    after = ""
    while True:
        page = admin.get("/v1/tasks", {"limit": 3, "after": after}, TaskList)
        seen += [task.name for task in page.items]
        after = page.page.next
        if not after:
            break
    assert seen == [task.name for task in admin.get("/v1/tasks", None, TaskList).items]


def test_a_task_is_shown(admin: Client) -> None:
    task = admin.get(quoted("tasks", "ann", "web", 2), None, TaskView)
    assert (task.state, task.reason[:4]) == (State.PENDING, "0 of")


def test_logs_are_streamed_as_they_are(api: RunningApi, admin: Client) -> None:
    path = quoted("tasks", "ann", "web", 0, "logs")
    assert (
        b"".join(admin.stream(path, {"previous": True, "tail": 5, "program": "proxy"}))
        == b"one\n\x1b[31mtwo\xff\n"
    )
    assert api.master.log_calls == [("ann/web/0", "proxy", False, LogWanted(previous=True, tail=5))]


def test_logs_since_a_time_and_with_times(api: RunningApi, admin: Client) -> None:
    path = quoted("tasks", "ann", "web", 0, "logs")
    list(admin.stream(path, {"since": "10m", "timestamps": True}))
    assert api.master.log_calls[-1][-1] == LogWanted(since=NOW.wall - 600, timestamps=True)
    list(admin.stream(path, {"since": "2026-01-01T00:00:00Z"}))
    assert api.master.log_calls[-1][-1] == LogWanted(since=1_767_225_600.0)
    with pytest.raises(Invalid, match="since: 'soon' is neither a time nor an age"):
        admin.stream(path, {"since": "soon"})


def test_logs_of_one_run_are_asked_for_by_its_attempt(api: RunningApi, admin: Client) -> None:
    path = quoted("tasks", "ann", "web", 0, "logs")
    list(admin.stream(path, {"attempt": 17, "restarts": 0}))
    list(admin.stream(path))
    assert api.master.log_runs == [(17, 0), (0, None)]
    with pytest.raises(Invalid, match="restarts is about an attempt"):
        admin.stream(path, {"restarts": 0})


def test_logs_that_cannot_be_had_say_why(api: RunningApi, admin: Client) -> None:
    api.master.log_failure = Unreachable("m1 does not answer", "look at m1")
    with pytest.raises(Unreachable, match="m1 does not answer") as caught:
        list(admin.stream(quoted("tasks", "ann", "web", 0, "logs")))
    assert caught.value.hint == "look at m1"


def test_what_is_in_the_way_of_the_first_piece_is_an_error_too(api: RunningApi, admin: Client) -> None:
    api.master.log_break = NotFound("m1 has no log of it", "It was removed after 24h")
    with pytest.raises(NotFound, match="no log of it"):
        admin.stream(quoted("tasks", "ann", "web", 0, "logs"))


def test_a_silent_log_is_followed_all_the_same(
    api: RunningApi, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FIRST_PIECE_SECONDS", 0.01)
    api.master.log_silence = True
    pieces = admin.stream(quoted("tasks", "ann", "web", 0, "logs"), {"follow": True})
    assert api.master.logs_open == 1
    del pieces
    until(lambda: api.master.logs_open == 0)


def test_logs_that_break_off_are_not_taken_for_whole(
    api: RunningApi, admin: Client, caplog: pytest.LogCaptureFixture
) -> None:
    api.master.log_break = Unreachable("m1 went away")
    pieces = admin.stream(quoted("tasks", "ann", "web", 0, "logs"))
    assert next(pieces) == b"one\n"
    with pytest.raises(Unreachable):
        next(pieces)
    until(lambda: "broke off: m1 went away" in caplog.text)
    assert "Traceback" not in caplog.text


def test_why(admin: Client) -> None:
    job = admin.get(quoted("why", "ann", "web"), None, WhyView)
    assert "1 pending" in job.text
    task = admin.get(quoted("why", "ann", "web", 2), None, WhyView)
    assert task.text.startswith("ann/web/2 waits")
    assert [event.position for event in task.events] == [2]


def test_machines(admin: Client) -> None:
    page = admin.get("/v1/machines", {"limit": 2}, MachineList)
    assert ([machine.name for machine in page.items], page.page.next) == (["m1", "m2"], "m2")
    assert admin.get(quoted("machines", "m3"), None, MachineView).state == "down"


def test_a_machine_joins(api: RunningApi) -> None:
    facts = Facts(Resources(1000), {"arch": "amd64"}, (), 20000, 20999)
    request = JoinRequest("m9", "127.0.0.1", 1234, "boot", "run", facts)
    reply = api.client("bgt_join").post("/v1/machines", request, JoinReply)
    assert (reply.machine, reply.poll_token) == ("m9", "bgt_poll")


def test_events(admin: Client) -> None:
    events = admin.get("/v1/events", {"job": "ann/web", "after": 2, "limit": 2}, EventList)
    assert [event.position for event in events.items] == [4, 5]
    events = admin.get("/v1/events", {"task": "ann/web/3"}, EventList)
    assert [event.position for event in events.items] == [3]


def test_checkpoints(admin: Client) -> None:
    assert len(admin.get("/v1/checkpoints", None, CheckpointList).items) == 1
    assert admin.post("/v1/checkpoints", None, CheckpointView).reason == "asked for by root"


def test_a_checkpoint_is_named(admin: Client) -> None:
    assert admin.post("/v1/checkpoints", CheckpointRequest("noon-1"), CheckpointView).name == "noon-1"


@pytest.mark.parametrize("name", ["7", "all", "now", "Noon", "a b", "-a", "a/b", "ä", "x" * 64, "noon\n"])
def test_a_name_that_a_checkpoint_cannot_have_is_refused(admin: Client, name: str) -> None:
    with pytest.raises(Invalid, match="invalid checkpoint name") as caught:
        admin.post("/v1/checkpoints", CheckpointRequest(name), CheckpointView)
    assert "a-z" in caught.value.hint


def test_a_checkpoint_is_taken_in(api: RunningApi, admin: Client) -> None:
    file = b"x" * (BODY_BYTES_MAX + 1)  # more than other bodies may have
    taken = admin.post("/v1/checkpoints/import", file, Imported, params={"name": "noon"})
    assert (taken.checkpoint.name, taken.checkpoint.reason) == ("noon", "imported by root")
    assert api.master.imported == file
    with pytest.raises(Invalid, match="invalid checkpoint name"):
        admin.post("/v1/checkpoints/import", file, Imported, params={"name": "now"})
    with pytest.raises(Forbidden):
        api.client("bgt_ann").post("/v1/checkpoints/import", file, Imported)


def test_a_checkpoint_is_looked_after(admin: Client) -> None:
    assert admin.get("/v1/checkpoints/20", None, CheckpointDetail).problem == "it is torn"
    assert not admin.post("/v1/checkpoints/20/verify", None, CheckpointVerdict).good
    assert admin.raw("GET", "/v1/checkpoints/20/body") == b"body of 20\xff"
    with pytest.raises(Conflict, match="root may not delete the last good one") as caught:
        admin.post("/v1/checkpoints/20/delete", None, CheckpointView)
    assert caught.value.hint == "Wait"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/ann/nope",
        "/v1/tasks/ann/web/4",
        "/v1/tasks/ann/nope/0",
        "/v1/tasks/ann/web/4/logs",
        "/v1/why/ann/nope",
        "/v1/why/ann/web/99",
        "/v1/machines/m4",
        "/v1/tasks?job=ann/nope",
        "/v1/tasks?machine=m4",
        "/v1/nothing",
        "/v1/checkpoints/21",
        "/v1/checkpoints/21/body",
        "/v1/checkpoints/99999999999999999999999",
        "/v1/checkpoints/noon",
    ],
)
def test_unknown_names_are_told_with_a_way_out(admin: Client, path: str) -> None:
    with pytest.raises(NotFound) as caught:
        admin.raw("GET", path)
    assert caught.value.hint


def test_a_name_near_to_another_is_offered(admin: Client) -> None:
    with pytest.raises(NotFound) as caught:
        admin.raw("GET", "/v1/jobs/ann/wob")
    assert caught.value.hint == "Did you mean ann/web?"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?limit=0",
        "/v1/jobs?limit=1001",
        "/v1/jobs?limit=many",
        "/v1/tasks?state=happy",
        "/v1/tasks?after=xyz",
        "/v1/tasks?job=" + "x" * 201,
        "/v1/events?after=-1",
        "/v1/events?task=ann/web",
        "/v1/events?job=ann/web&task=ann/web/0",
        "/v1/watch?kinds=nothing",
        "/v1/watch?kinds=",
        "/v1/tasks/ann/web/0/logs?tail=-1",
        "/v1/tasks/ann/web/0/logs?follow=perhaps",
    ],
)
def test_parameters_out_of_bounds_are_refused(admin: Client, path: str) -> None:
    with pytest.raises(Invalid):
        admin.raw("GET", path)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b'{"tasks": "3"}', "invalid body"),
        (b'{"tasks": 3.0}', "invalid body"),
        (b'{"tasks": NaN}', "not JSON"),
        (b'{"tasks": 3, "more": 1}', "invalid body"),
        (b"", "invalid body"),
        (b"[" * 60_000, "nested|not JSON|invalid body"),
        (b'"\xff"', "not JSON|invalid body"),
    ],
)
def test_json_bodies_are_read_strictly(api: RunningApi, admin: Client, body: bytes, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        admin.raw("POST", "/v1/jobs/ann/web/scale", body=body)
    assert api.master.asked == []


def test_a_field_that_does_not_fit_is_named(admin: Client) -> None:
    with pytest.raises(Invalid) as caught:
        admin.raw("POST", "/v1/jobs/ann/web/kill", body=b'{"indexes": [1, "2"]}')
    assert caught.value.mistakes[0].path == "indexes[1]"
    assert caught.value.hint == "Its fields are indexes, max_affected"


@pytest.mark.parametrize("name", ["a b", "m_1", "Ä", "m\x1b[2J", "m" * 64])
def test_an_invitation_for_a_name_that_no_machine_can_have_names_it(
    api: RunningApi, admin: Client, name: str
) -> None:
    body = msgspec.json.encode({"sha256": "0" * 64, "machine": name})
    with pytest.raises(Invalid) as caught:
        admin.raw("POST", "/v1/invitations", body=body)
    assert caught.value.message == f"invalid machine name {name[:63]!r}"
    assert caught.value.hint == NAME_HINT
    assert api.master.asked == []


def test_a_body_too_large_is_refused_and_nothing_changed(api: RunningApi, admin: Client) -> None:
    with pytest.raises(TooLarge, match="1048576 bytes"):
        submit(admin, b"#" * (1024 * 1024 + 1), user="ann")
    assert api.master.asked == []
    assert submit(admin, JOB + b"#" * (1024 * 1024 - len(JOB)), user="ann").position == 21


def test_what_nobody_foresaw_is_told_without_a_word_of_it(api: RunningApi, admin: Client) -> None:
    api.master.failure = RuntimeError("secret /path/to/file")
    with pytest.raises(BorgishError, match="internal error while handling") as caught:
        admin.get("/v1/status", None, StatusView)
    assert "secret" not in str(caught.value)
    assert "log" in caught.value.hint
    api.master.failure = None
    assert admin.get("/v1/status", None, StatusView).cell == "test"


def test_a_master_that_cannot_answer_now_says_so(api: RunningApi, admin: Client) -> None:
    api.master.failure = Unreachable("the master is ending", "Ask again in a moment")
    with pytest.raises(Unreachable, match="is ending"):
        submit(admin, user="ann")
