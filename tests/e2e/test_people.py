"""Users, groups, tokens and the audit log on a running cell, as typed; none of it rolls back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from borgish.credentials import LETTER_BOX
from tests.cells import RealCell, wait_until
from tests.forked import Ended

SECONDS_MAX = 60.0

As = Callable[..., Ended]


def job(name: str, user: str, priority: str = "batch") -> str:
    return (
        f"name: {name}\nuser: {user}\npriority: {priority}\nrun: [sleep, '100000']\n"
        "allow_exec: true\nenv: {LEVEL: quiet}\nresources: {cpu: 10m, ram: 8MiB}\n"
    )


def submit(asked: As, name: str, user: str, priority: str = "batch") -> Ended:
    return asked("job", "submit", "--settle", 0, "-", stdin=job(name, user, priority))


@pytest.fixture
def given(tidied: RealCell, tmp_path: Path) -> Callable[..., As]:
    """Gives borgctl with a fresh token of somebody."""

    def give(user: str, role: str, *options: object) -> As:
        path = tmp_path / f"{user}.{role}.{len(list(tmp_path.iterdir()))}"
        tidied.ok("token", "create", "--user", user, "--role", role, "--to", path, *options)
        assert path.stat().st_mode & 0o777 == 0o600

        def asked(*arguments: object, stdin: str = "") -> Ended:
            return tidied.borgctl("--token-file", path, *arguments, stdin=stdin)

        return asked

    return give


def test_people_reach_as_far_as_they_were_let(tidied: RealCell, given: Callable[..., As]) -> None:
    for user in ("pia", "paul"):
        tidied.ok("user", "add", user)
    tidied.ok("group", "add", "shop-team", "--member", "pia")
    pia, paul, olga = given("pia", "user"), given("paul", "user"), given("olga", "operator")

    assert submit(pia, "own", "pia").code == 0
    assert submit(pia, "ours", "shop-team").code == 0
    refused = submit(pia, "high", "pia", "production")
    assert refused.code == 4
    assert "borgctl user grant pia production" in refused.err
    assert "for admins" in submit(pia, "top", "pia", "monitoring").err
    assert submit(paul, "theirs", "shop-team").code == 4
    assert paul("job", "kill", "--yes", "pia/own").code == paul("task", "logs", "pia/own/0").code == 4
    assert paul("job", "show", "pia/own", "-o", "json").out.count("quiet") == 0, "values of an environment"
    assert "quiet" in pia("job", "show", "pia/own", "-o", "json").out

    tidied.ok("group", "members", "shop-team", "--add", "paul")
    assert paul("job", "kill", "--yes", "shop-team/ours").code == 0
    tidied.ok("user", "grant", "pia", "production")
    assert submit(pia, "high", "pia", "production").code == 0
    tidied.ok("user", "ungrant", "pia", "production")
    assert pia("job", "scale", "pia/high", 2).code == 4

    assert olga("machine", "cordon", "m1").code == olga("machine", "uncordon", "m1").code == 0
    exec_ = ("task", "exec", "pia/own/0", "--", "true")
    for beyond in (("job", "kill", "--yes", "pia/own"), exec_, ("user", "list")):
        assert olga(*beyond).code == 4, beyond
    limited = given("pia", "user", "--bands", "free")
    assert "is for free alone" in submit(limited, "batch", "pia").err
    assert submit(limited, "free", "pia", "free").code == 0

    (token,) = [each for each in tidied.items("token", "list") if each["bands"] == ["free"]]
    assert (token["user"], token["role"]) == ("pia", "user")
    assert {each["user"] for each in _items(pia, "token", "list")} == {"pia"}
    assert paul("token", "revoke", token["id"]).code == 1
    assert given("pia", "reader")("token", "revoke", token["id"]).code == 1, (
        "one that leaked ends nobody's work"
    )
    assert pia("token", "revoke", token["id"]).code == 0
    assert limited("job", "list").code == 4


def _items(asked: As, *arguments: object) -> list[Any]:
    found: list[Any] = json.loads(asked(*arguments, "-o", "json").out)
    return found


def test_a_rollback_brings_back_no_token_and_takes_none(tidied: RealCell, given: Callable[..., As]) -> None:
    tidied.ok("user", "add", "rita")
    old = given("rita", "user")
    before = tidied.items("status")["position"]
    assert submit(old, "kept", "rita").code == 0
    (revoked,) = [each["id"] for each in tidied.items("token", "list") if each["user"] == "rita"]
    tidied.ok("token", "revoke", revoked)
    new = given("rita", "user")
    tidied.ok("rollback", "--yes", before, "--max-affected", 100)
    assert old("job", "list").code == 4
    assert new("job", "list").code == 0
    assert revoked not in tidied.ok("token", "list")


def test_what_people_do_is_in_the_audit_log(tidied: RealCell, given: Callable[..., As]) -> None:
    tidied.ok("user", "add", "abe")
    abe = given("abe", "user")
    assert submit(abe, "seen", "abe").code == 0
    tidied.ok("task", "logs", "abe/seen/0")
    assert abe("task", "exec", "abe/seen/0", "--", "true").code == 0
    assert abe("user", "list").code == 4
    found = tidied.items("audit", "-n", 10)
    asked = [(each["user"], each["role"], each["action"], each["object"]) for each in found]
    assert ("abe", "user", "submit", "abe/seen") in asked
    assert ("abe", "user", "exec", "abe/seen/0") in asked
    assert any(each[1:] == ("admin", "logs", "abe/seen/0") for each in asked), "an admin looked"
    assert {each["source"] for each in found if each["user"] != "host"} == {"127.0.0.1"}
    assert all(each["user"] == "abe" for each in tidied.items("audit", "--user", "abe"))
    verified = tidied.ok("audit", "verify")
    assert "holds" in verified
    known = verified.split()[-1]
    assert "holds" in tidied.ok("audit", "verify", "--known", known)
    other = f"{known.partition(':')[0]}:{'0' * 64}"
    cut_off = tidied.borgctl("audit", "verify", "--known", other)
    assert cut_off.code == 1
    assert "which was there, is not" in cut_off.err
    assert tidied.borgctl("audit", "verify", "--known", "7").code == 2
    assert abe("audit").code == 4


def test_a_lost_admin_token_is_replaced_on_the_host(tidied: RealCell, tmp_path: Path) -> None:
    path = tidied.folder / "tokens" / "admin.token"
    old = tmp_path / "old"
    old.write_bytes(path.read_bytes())
    try:
        assert "the borgmaster was told" in tidied.ok("cell", "recover")
        wait_until(lambda: not (tidied.folder / LETTER_BOX).exists(), SECONDS_MAX)
        assert path.read_bytes() != old.read_bytes()
        tidied.ok("job", "list")
        assert "take over tokens" in tidied.ok("history", "--cell", "-n", 5)
        (noted, *_) = tidied.items("audit", "--user", "host")
        assert (noted["role"], noted["action"]) == ("host", "take over tokens"), "S25: it is audited"
    finally:
        path.write_bytes(old.read_bytes())


def test_a_revoked_machine_is_out_and_comes_back_by_an_invitation(tidied: RealCell) -> None:
    tidied.ok("machine", "revoke", "--yes", "m2")
    (m2,) = [each for each in tidied.items("machine", "list") if each["name"] == "m2"]
    assert m2["state"] == "revoked"
    line = tidied.ok("machine", "invite", "m2")
    assert line.startswith("borglet join http://127.0.0.1:")
    secret = line.split("BG1")[1].split()[0]
    (tidied.folder / "machines" / "m2" / "join.token").write_text("BG1" + secret)

    def is_up() -> bool:
        return any(each["name"] == "m2" and each["state"] == "up" for each in tidied.items("machine", "list"))

    wait_until(is_up, SECONDS_MAX)
    assert not [each for each in tidied.items("machine", "invitations") if each["machine"] == "m2"]
