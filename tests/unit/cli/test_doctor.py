"""``borgctl doctor``: each check of its tables is made to pass, and to find fault."""

import fcntl
import json
import os
import socket
import sqlite3
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

import borgish
from borgish.cli import borgctl
from borgish.cli.doctor import cell as doctor_cell
from borgish.cli.doctor import host as doctor_host
from borgish.cli.doctor.cell import CELL_CHECKS, judged
from borgish.cli.doctor.host import HOST_CHECKS, Process, is_old_runc
from borgish.clock import SystemClock
from borgish.text import instant
from borgish.tls.folder import make_authority, renew_master
from borgish.tls.validity import Validity
from borgish.vocabulary import HELD, PROGRAM_MEASURES
from borgish.wire.api import (
    CheckpointView,
    DrainView,
    HealthView,
    JobView,
    MachineView,
    Problem,
    RefusalView,
    SummaryView,
)
from borgish.wire.api_access import AuditVerdict, InvitationView, TokenView, UserView
from borgish.wire.api_past import CheckpointVerdict
from tests.unit.cli.samples import NOW, Asked, FakeMaster, job, machine, refusal, serving, status

DAY = 86400.0
DENIED = Problem("Forbidden", 403, "not for you")
UNKNOWN = Problem("Unauthorized", 401, "who are you")
KEPT = CheckpointView(42, NOW, "time", 100, "ab")
TOKEN = TokenView("1a", "ann", "user", (), NOW, "root", NOW, NOW, "")
HEALTH = HealthView("local", "0.1.0", "leader", "", "", "", 1, 1, 42, True, None, "", NOW)
INVITATION = InvitationView("2b", "", 5, NOW, "root", NOW)


class Scene:
    """A cell that is well, and its folder on this host."""

    def __init__(self, master: FakeMaster, folder: Path) -> None:
        self.master, self.folder, self.is_running = master, folder, True
        self.status = msgspec.structs.replace(status(), version=borgish.__version__)
        self.jobs: tuple[JobView, ...] = ()
        self.pending: tuple[RefusalView, ...] = ()
        self.token = msgspec.structs.replace(TOKEN, used_at=now())
        self.kept = msgspec.structs.replace(KEPT, at=now())
        self.process = Process("borgmaster", os.getpid(), 12345, 0, 0, ("127.0.0.1:7400",))
        self.engine: dict[str, Any] = {"Version": "29", "Components": [{"Name": "runc", "Version": "1.3.4"}]}
        self.certificate = Validity(0.0, SystemClock().now().wall + 20 * DAY)
        self.answers: dict[str, object] = {
            "GET /v1/status": lambda asked: self.at_the_door(asked),
            "GET /v1/health": lambda asked: HEALTH if "rebound" not in asked.headers["Host"] else DENIED,
            "GET /v1/summary": lambda _: SummaryView(self.status, (), self.jobs, self.pending, ()),
            "GET /v1/checkpoints": lambda _: {"items": [self.kept]},
            "POST /v1/checkpoints/42/verify": CheckpointVerdict(42, "", good=True, text=""),
            "POST /v1/audit/verify": AuditVerdict(1, holds=True, trouble="", first_at=NOW, last_at=NOW),
            "GET /v1/tokens": lambda asked: self.at_the_door(asked, {"items": [self.token], "page": {}}),
            "GET /v1/invitations": {"items": [], "page": {}},
            "GET /v1/users": {"items": [], "page": {}},
        }
        self.has(well())
        folder.mkdir(mode=0o700)
        for name in ("secret", "cell.lock", "cell.toml", "admin.token"):
            self.write(name, 'name = "local"\n' if name == "cell.toml" else str(os.getpid()))
        os.utime(folder)

    def at_the_door(self, asked: Asked, answer: object = None) -> object:
        seen = msgspec.structs.replace(self.status, now=self.status.now if self.status.now != NOW else now())
        return (answer or seen) if "Authorization" in asked.headers else UNKNOWN

    def has(self, *machines: object) -> None:
        self.answers["GET /v1/machines"] = {"items": machines, "page": {}}

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    def is_machine(self, text: str) -> None:
        (self.folder / "secret").unlink()
        self.write("borglet.toml", 'state = "."\nmaster = ""\n' + text)

    def process_holding(self, name: str, lock: Path) -> Process | None:
        held = self.is_running and lock.exists()
        return msgspec.structs.replace(self.process, name=name) if held else None

    def ask_engine(self, path: str) -> dict[str, Any]:
        return self.engine


def well(**changes: Any) -> MachineView:
    """A machine of this release on which all is held."""
    told: dict[str, Any] = {
        "attributes": {"borglet": borgish.__version__},
        "confinement": dict.fromkeys(doctor_cell.MEASURES, HELD),
        "runtimes": ("docker", "process"),
    }
    return machine(**(told | changes))


def now(ago: float = 0.0) -> str:
    return instant(SystemClock().now().wall - ago)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with serving(FakeMaster()) as master:
        made = Scene(master, tmp_path / "cell")
        made.process = msgspec.structs.replace(made.process, uid=os.getuid() or 0)
        master.answers = made.answers
        monkeypatch.setenv("BORGISH_URL", master.url)
        monkeypatch.setenv("BORGISH_TOKEN_FILE", str(made.folder / "admin.token"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'engine'}")
        monkeypatch.setattr(doctor_host, "process_holding", made.process_holding)
        monkeypatch.setattr(doctor_host, "ask_engine", made.ask_engine)
        yield made


Break = Callable[[Scene, pytest.MonkeyPatch], None]


def seen(**changes: object) -> Break:
    return lambda it, _: setattr(it, "status", msgspec.structs.replace(it.status, **changes))


def answers(route: str, value: object) -> Break:
    return lambda it, _: it.answers.__setitem__(route, value)


def process(**changes: object) -> Break:
    return lambda it, _: setattr(it, "process", msgspec.structs.replace(it.process, **changes))


def machines(**changes: object) -> Break:
    return lambda it, _: it.has(well(**changes))


def silent_master(it: Scene, patch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        patch.setenv("BORGISH_URL", f"http://127.0.0.1:{free.getsockname()[1]}")


def second_master(it: Scene, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("BORGISH_URL", f"{it.master.url},http://127.0.0.1:1")


def plain_elsewhere(it: Scene, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor_cell, "LOOPBACK", frozenset())


def endless_elsewhere(it: Scene, patch: pytest.MonkeyPatch) -> None:
    plain_elsewhere(it, patch)
    it.token = msgspec.structs.replace(it.token, expires_at="")


def endless_of_the_host(it: Scene, patch: pytest.MonkeyPatch) -> None:
    endless_elsewhere(it, patch)
    it.token = msgspec.structs.replace(it.token, created_by=doctor_cell.BY_HOST)


def near_its_end(it: Scene, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor_cell, "validity_shown", lambda _: Validity(0.0, SystemClock().now().wall + DAY))
    it.answers["GET /v1/status"] = msgspec.structs.replace(it.status, now=now())


def old_certificate(it: Scene, patch: pytest.MonkeyPatch) -> None:
    begins = SystemClock().now().wall - 29 * DAY
    make_authority(it.folder, "local", begins)
    renew_master(it.folder, "local", frozenset({"127.0.0.1"}), begins)


def key_is_elsewhere(it: Scene, patch: pytest.MonkeyPatch) -> None:
    make_authority(it.folder, "local", SystemClock().now().wall)
    next(it.folder.glob("authority.*.key")).unlink()


def key_is_open(it: Scene, patch: pytest.MonkeyPatch) -> None:
    make_authority(it.folder, "local", SystemClock().now().wall)
    next(it.folder.glob("authority.*.key")).chmod(0o644)


def loose_login(it: Scene, patch: pytest.MonkeyPatch) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "borgish" / "cells" / "prod" / "token"
    path.parent.mkdir(parents=True)
    path.write_text("bgt_x")
    path.chmod(0o644)


def damaged(it: Scene, patch: pytest.MonkeyPatch) -> None:
    it.is_running = False
    it.write("cell.db", "no database, and long enough to be taken for one" * 50)


def old_sqlite(it: Scene, patch: pytest.MonkeyPatch) -> None:
    it.write("cell.db", "")
    patch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))


def stopped(it: Scene, patch: pytest.MonkeyPatch) -> None:
    it.is_running = False


def full_disk(it: Scene, patch: pytest.MonkeyPatch) -> None:
    usage = psutil.disk_usage("/")
    patch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1024))


def engine_for_all(it: Scene, patch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    os.chmod(os.environ["DOCKER_HOST"].removeprefix("unix://"), 0o666)


def engine_on_tcp(it: Scene, patch: pytest.MonkeyPatch) -> None:
    class Dockerd:
        pid, info = 7, {"name": "dockerd", "cmdline": ["dockerd", "-H", "tcp://0.0.0.0:2375"]}

    patch.setattr(psutil, "process_iter", lambda _: [Dockerd])


def waits(ago: float, **changes: Any) -> Break:
    told = {"since": now(ago), **changes}
    return lambda it, _: setattr(it, "pending", (msgspec.structs.replace(refusal(), **told),))


BROKEN: dict[str, tuple[str, Break]] = {
    "master": ("fail", silent_master),
    "masters": ("warn", second_master),
    "commands": ("fail", seen(refusing=("new work is refused",))),
    "held back": ("warn", seen(frozen="by ann")),
    "waiting tasks": ("warn", waits(600.0)),
    "versions": ("warn", machines(attributes={"borglet": "0.0.1"})),
    "clock": ("fail", seen(now="2020-01-01T00:00:00Z")),
    "store's disk": ("warn", seen(store_free_bytes=1024)),
    "checkpoints": (
        "fail",
        answers("POST /v1/checkpoints/42/verify", CheckpointVerdict(42, "", False, "no")),
    ),
    "audit log": ("fail", answers("POST /v1/audit/verify", AuditVerdict(3, False, "entry 4", NOW, NOW))),
    "machines": ("fail", machines(state="down")),
    "conditions": ("warn", machines(conditions=("its disk is nearly full",))),
    "engines": ("fail", answers("GET /v1/machines", Problem("Broken", 500, "it broke"))),
    "certificate": ("fail", near_its_end),
    "tokens": ("warn", endless_elsewhere),
    "host's token": ("warn", endless_of_the_host),
    "invitations": ("warn", answers("GET /v1/invitations", {"items": [INVITATION], "page": {}})),
    "grants": (
        "warn",
        answers("GET /v1/users", {"items": [UserView("ann", NOW, ("container-root",), (), 1)], "page": {}}),
    ),
    "door": ("fail", answers("GET /metrics", {})),
    "host header": ("fail", answers("GET /v1/health", HEALTH)),
    "tls": ("fail", plain_elsewhere),
    **{measure: ("warn", machines(confinement={measure: "not here"})) for measure in doctor_cell.MEASURES},
    "daemons": ("fail", stopped),
    "master from here": ("fail", lambda it, _: it.is_machine("")),
    "disk": ("fail", full_disk),
    "database": ("fail", damaged),
    "sqlite": (
        "warn",
        old_sqlite,
    ),
    "file modes": ("fail", lambda it, _: (it.folder / "secret").chmod(0o644)),
    "file owners": ("fail", process(uid=54321)),
    "configuration": ("fail", lambda it, _: (it.folder / "cell.toml").chmod(0o666)),
    "certificate files": ("fail", old_certificate),
    "login files": ("fail", loose_login),
    "authority's key": ("fail", key_is_open),
    "listening": ("fail", process(addresses=("0.0.0.0:7400",))),
    "master's rights": ("warn", process(uid=0, capabilities=1)),
    "core dumps": ("fail", process(core_bytes=-1)),
    "machine's file": ("fail", lambda it, _: it.is_machine("[process]\nconfine = false\n")),
    "control groups": ("warn", lambda _, patch: patch.setattr(doctor_host, "CGROUPS_2", Path("/nowhere"))),
    "engine's socket": ("fail", engine_for_all),
    "engine's ports": ("fail", engine_on_tcp),
    "engine's version": (
        "warn",
        lambda it, _: it.engine.update(Components=[{"Name": "runc", "Version": "1.1.5+ds1"}]),
    ),
}


def looked(scene: Scene, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Return the worst level of each check, and what is to be done."""
    borgctl.run(["doctor", "--security", "-o", "json", "--dir", str(scene.folder)])
    order = ["pass", "warn", "fail"]
    found: dict[str, tuple[str, str]] = {}
    for it in json.loads(capsys.readouterr().out):
        before = found.get(it["check"], ("pass", ""))
        if order.index(it["level"]) >= order.index(before[0]):
            found[it["check"]] = it["level"], it["to_do"]
    return found


def test_each_check_has_a_test_that_makes_it_find_fault() -> None:
    names = [check.name for check in (*CELL_CHECKS, *HOST_CHECKS)]
    assert len(names) == len(set(names))
    assert set(names) == BROKEN.keys()


def test_a_cell_that_is_well_passes(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    levels = {name: level for name, (level, _) in looked(scene, capsys).items()}
    of_this_host = {"control groups", "master's rights"}
    assert {name for name, level in levels.items() if level != "pass"} <= of_this_host
    assert levels.keys() == BROKEN.keys()


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_found_and_the_way_out_is_said(
    name: str, scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    level, breaks = BROKEN[name]
    breaks(scene, monkeypatch)
    found, to_do = looked(scene, capsys)[name]
    assert found == level
    assert to_do


def said_of(check: str, scene: Scene, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what a check says and what is to be done, where it does not pass."""
    borgctl.run(["doctor", "-o", "json", "--dir", str(scene.folder)])
    found = [it for it in json.loads(capsys.readouterr().out) if it["check"] == check]
    return [f"{it['text']} - {it['to_do']}" for it in found if it["level"] != "pass"]


def test_jobs_that_fail_wherever_they_are_are_held_back(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.jobs = (job(), *(job(name=f"ann/bad{number}", held=True) for number in range(5)))
    (said,) = said_of("held back", scene, capsys)
    assert said.startswith(
        "held, since they fail wherever they are: ann/bad0, ann/bad1, ann/bad2 and 2 more - "
    )
    assert "`borgctl why ann/bad0`" in said


@pytest.mark.parametrize(
    ("ago", "staying", "is_stuck"),
    [
        (600.0, ("ann/step/0: it may finish until 23:00", "ann/web/0-2: no machine has room"), True),
        (600.0, ("ann/step/0: it may finish until 23:00",), False),
        (600.0, (), False),
        (60.0, ("ann/web/0-2: no machine has room",), False),
    ],
)
def test_a_drain_that_does_not_get_on_is_held_back(
    ago: float, staying: tuple[str, ...], *, is_stuck: bool, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    drain = DrainView("drained by ann", "ann", now(ago), now(), begun=True)
    scene.has(well(state="draining", drains=(drain,), staying=staying))
    said = said_of("held back", scene, capsys)
    assert len(said) == is_stuck
    if is_stuck:
        assert said[0].startswith("drained, and not empty yet: m1 (ann/web/0-2: no machine has room) - ")
        assert "`borgctl machine show m1`" in said[0]


@pytest.mark.parametrize(
    ("ago", "changes", "words"),
    [
        (600.0, {}, "2 tasks without a machine for more than 5m: ann/web - `borgctl why ann/web`"),
        (600.0, {"tasks": 1, "job": "ann/db"}, "1 task without a machine for more than 5m: ann/db"),
        (60.0, {}, ""),
        (600.0, {"in_order": True}, ""),  # it waits for other jobs
        (600.0, {"job": "ann/held"}, ""),
    ],
)
def test_tasks_that_wait_for_long_are_told_of(
    ago: float,
    changes: dict[str, Any],
    words: str,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene.jobs = (job(name="ann/held", held=True),)
    waits(ago, **changes)(scene, monkeypatch)
    said = said_of("waiting tasks", scene, capsys)
    assert len(said) == bool(words)
    assert words in "".join(said)


def test_of_more_tasks_than_are_told_of_the_count_is_the_least(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits(600.0)(scene, monkeypatch)
    scene.status = msgspec.structs.replace(scene.status, pending=900)
    assert said_of("waiting tasks", scene, capsys)[0].startswith("at least 2 tasks without a machine")


@pytest.mark.parametrize(
    ("runtimes", "is_about"),
    [
        (("process",), lambda measure: measure in PROGRAM_MEASURES),
        (("docker",), lambda measure: measure.startswith("docker ")),
        (("fake",), lambda _: False),
    ],
)
def test_what_a_machine_does_not_report_does_not_pass_as_held(
    runtimes: tuple[str, ...],
    is_about: Callable[[str], bool],
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So is a borglet of an old release, and one that was not heard since its master started."""
    scene.has(well(runtimes=runtimes, confinement={}))
    found = looked(scene, capsys)
    for measure in doctor_cell.MEASURES:
        assert found[measure][0] == ("warn" if is_about(measure) else "pass"), measure


@pytest.mark.parametrize("state", ["down", "revoked"])
def test_what_runs_nothing_is_not_asked_what_it_holds(
    state: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.has(well(confinement={}, state=state))
    assert looked(scene, capsys)["uid"][0] == "pass"


def test_a_machine_that_says_no_version_is_of_another_release(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.has(well(attributes={}))
    borgctl.run(["doctor", "--dir", str(scene.folder)])
    assert "m1 (says none)" in capsys.readouterr().out


def accepting(scene: Scene, text: str) -> int:
    """Return how doctor ends by a list of accepted warnings."""
    path = scene.folder.parent / "accepted.toml"
    path.write_text(text)
    return borgctl.run(["doctor", "--security", "--dir", str(scene.folder), "--accept", str(path)])


OF_THIS_HOST = """
["control groups"]
"of version 1" = "as this host boots"
["master's rights"]
"as uid 0" = "a test's"
"""


def test_the_exit_code_is_by_the_worst(scene: Scene) -> None:
    scene.has(well(conditions=("hot",)))
    assert borgctl.run(["doctor", "--dir", str(scene.folder)]) == 3
    assert accepting(scene, OF_THIS_HOST + '[conditions]\nhot = "it is summer"\n') == 0
    scene.status = msgspec.structs.replace(scene.status, refusing=("new work",))
    assert accepting(scene, OF_THIS_HOST + '[conditions]\nhot = "it is summer"\n') == 1


def test_what_is_accepted_hides_no_other_finding_of_the_same_check(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    known = OF_THIS_HOST + '[metadata]\n"neither nft nor iptables" = "no cloud"\n'
    held = dict.fromkeys(doctor_cell.MEASURES, HELD)
    lacks = well(confinement=held | {"metadata": "neither nft nor iptables is there"})
    scene.has(lacks)
    assert accepting(scene, known) == 0
    scene.has(lacks, well(name="m2", confinement=held | {"metadata": "nft: failed"}))
    capsys.readouterr()
    assert accepting(scene, known) == 3
    said = capsys.readouterr().out
    assert "warn  metadata (S67)                 m2: nft: failed" in said
    assert "m1: neither nft nor iptables is there\n" in said
    assert "accepted: no cloud" in said


def test_what_is_accepted_and_not_found_is_said(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert accepting(scene, OF_THIS_HOST + '[metadata]\n"neither nft" = "no cloud"\n') == 0
    said = capsys.readouterr().err
    assert "accepted and not found here: metadata: neither nft" in said
    silent = ["doctor", "--dir", str(scene.folder), "--accept", str(scene.folder.parent / "accepted.toml")]
    assert borgctl.run(silent) == 0
    assert "not found" not in capsys.readouterr().err, "it was not looked for"


@pytest.mark.parametrize(
    "text",
    [
        'condition = { hot = "a typo" }',
        'conditions = "of a release before"',
        'conditions = { hot = "" }',
        'conditions = { "" = "all of them" }',
        "conditions = 3",
        "[",
    ],
)
def test_a_list_of_accepted_warnings_that_is_wrong_accepts_nothing(text: str, scene: Scene) -> None:
    assert accepting(scene, text) == 2


def test_the_list_that_is_shipped_names_checks() -> None:
    from borgish.cli.commands.doctor import read_accepted

    path = Path(__file__).parents[3] / "configs" / "doctor-accepted.toml"
    assert read_accepted(path, set(BROKEN))


def test_without_a_master_the_host_is_looked_at(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent_master(scene, monkeypatch)
    assert borgctl.run(["doctor", "--dir", str(scene.folder)]) == 1
    said = capsys.readouterr()
    assert "fail  master" in said.out
    assert "file modes (S37)" in said.out
    assert "was not looked at" in said.err


def test_what_a_lesser_token_may_not_see_is_a_warning(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.answers["POST /v1/audit/verify"] = DENIED
    assert looked(scene, capsys)["audit log"] == ("warn", "Ask with the token of an admin")


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("1.1.12", True), ("1.2.7", True), ("1.2.8", False), ("1.3.2+ds", True), ("1.4.0", False), ("", False)],
)
def test_which_runc_is_old(version: str, is_old: bool) -> None:
    assert is_old_runc(version) is is_old


def test_an_authority_whose_key_is_elsewhere_warns(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key_is_elsewhere(scene, monkeypatch)
    assert looked(scene, capsys)["authority's key"][0] == "warn"


def test_a_certificate_near_its_end_warns_before_it_fails() -> None:
    wall = SystemClock().now().wall
    levels = [judged("it", Validity(0.0, wall + days * DAY), "")[0].level for days in (20, 6, 2, -1)]
    assert levels == ["pass", "warn", "fail", "fail"]


def test_who_holds_a_lock_is_found_and_who_is_gone_is_not(tmp_path: Path) -> None:
    path = tmp_path / "cell.lock"
    with path.open("w") as lock:
        lock.write(str(os.getpid()))
        lock.flush()
        assert doctor_host.process_holding("borgmaster", path) is None
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = doctor_host.process_holding("borgmaster", path)
        assert found is not None
        assert (found.pid, found.uid) == (os.getpid(), os.geteuid())


def test_what_is_shown_to_root_alone_is_said(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.process = msgspec.structs.replace(scene.process, addresses=None)
    assert looked(scene, capsys)["listening"] == ("warn", "Run doctor as root")


def test_tls_1_2_is_noticed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a listener that takes whatever is offered."""
    import threading

    from borgish.addresses import address_of

    make_authority(scene.folder, "local", SystemClock().now().wall)
    renew_master(scene.folder, "local", frozenset({"127.0.0.1"}), SystemClock().now().wall)
    for lowest, takes in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, False)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(scene.folder / "master.pem")
        context.minimum_version = lowest
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=one_handshake, args=(server, context))
            thread.start()
            url = f"https://127.0.0.1:{server.getsockname()[1]}"
            assert doctor_cell.takes_tls_1_2(address_of(url)) is takes
            thread.join()


def one_handshake(server: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = server.accept()
    with connection:
        try:
            context.wrap_socket(connection, server_side=True).close()
        except (ssl.SSLError, OSError):
            return
