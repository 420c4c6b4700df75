"""What a reload takes of two readings of a file, and what it says of them."""

from pathlib import Path

import pytest

from borgish.api.auth import Tokens
from borgish.api.gateway import Principal
from borgish.borglet.settings import LIVE as BORGLET_LIVE
from borgish.borglet.settings import File
from borgish.borglet.settings import Tls as BorgletTls
from borgish.errors import UnsafeConfiguration
from borgish.master.settings import LIVE, Settings, Tls, read_settings, reread
from borgish.reload import changes, merged

CELL = 'name = "c"\nlisten = "127.0.0.1:7400"\n'


def settings(folder: Path, text: str = "") -> Settings:
    (folder / "cell.toml").write_text(CELL + text)
    return read_settings(folder / "cell.toml")


def said(old: Settings, new: Settings) -> list[str]:
    return [str(change) for change in changes(old, new, LIVE)]


def test_live_keys_count_and_the_rest_is_named(tmp_path: Path) -> None:
    old = settings(tmp_path)
    new = settings(
        tmp_path,
        'db = "postgresql://u:secret@h/d"\n[poll]\ndown_after_seconds = 20.0\n[limits]\nrefused_burst = 7\n'
        '[quota]\nrequired = true\n[scheduler]\npolicy = "best_fit"\n',
    )
    assert said(old, new) == [
        "db: changed; this needs a restart, and stays as it was",
        "poll.down_after_seconds: 10.0 -> 20.0",
        "scheduler.policy: 'hybrid' -> 'best_fit'; this needs a restart, and stays as it was",
        "quota.required: False -> True; this needs a restart, and stays as it was",
        "limits.refused_burst: 100 -> 7",
    ]
    taken = reread(tmp_path / "cell.toml", old, new)
    assert (taken.poll.down_after_seconds, taken.limits.refused_burst) == (20.0, 7)
    assert (taken.db, taken.quota.required, taken.scheduler.policy) == ("", False, "hybrid")
    assert said(taken, new) == [line for line in said(old, new) if "restart" in line], "until it is started"


def test_nothing_changed_says_nothing(tmp_path: Path) -> None:
    assert said(settings(tmp_path), settings(tmp_path)) == []


def test_live_keys_that_do_not_go_with_the_rest_are_refused(tmp_path: Path) -> None:
    old = settings(tmp_path)
    new = settings(tmp_path, "[journal]\nkeep_days = 20\n[checkpoints]\nkeep = {daily = 30}\n")
    with pytest.raises(UnsafeConfiguration, match=r"journal\.keep_days: 20 days cannot be kept"):
        reread(tmp_path / "cell.toml", old, new)


def test_tls_cannot_come_or_go_while_running() -> None:
    plain, with_tls = Settings("c"), Settings("c", tls=Tls("a.pem", "a.key", "ca.pem"))
    other = Settings("c", tls=Tls("b.pem", "a.key", "ca.pem"))
    assert merged(plain, with_tls, LIVE).tls is None
    assert merged(with_tls, plain, LIVE).tls == with_tls.tls
    assert merged(with_tls, other, LIVE).tls == other.tls
    assert all("needs a restart" in line for line in said(plain, with_tls))
    assert said(with_tls, other) == ["tls.certificate: 'a.pem' -> 'b.pem'"]


def test_a_borglet_changes_its_masters_and_nothing_of_its_machine() -> None:
    old = File("m1", "http://127.0.0.1:7400", "join.token", "m1", tls=BorgletTls("a.pem", "a.key"))
    new = File("m1", "http://127.0.0.1:7401", "other.token", "m1", capacity={"cpu": "8"}, tls=old.tls)
    assert [str(change) for change in changes(old, new, BORGLET_LIVE)] == [
        "master: 'http://127.0.0.1:7400' -> 'http://127.0.0.1:7401'",
        "join_token_file: 'join.token' -> 'other.token'",
        "capacity: {} -> {'cpu': '8'}; this needs a restart, and stays as it was",
    ]
    taken = merged(old, new, BORGLET_LIVE)
    assert (taken.master, taken.join_token_file, taken.capacity) == (new.master, new.join_token_file, {})


def test_each_token_that_changes_is_named_and_none_is_shown() -> None:
    a, b, c = "a" * 64, "b" * 64, "c" * 64
    tokens = Tokens({a: Principal("ann", "user"), b: Principal("bob", "user")})
    new = Tokens({a: Principal("ann", "admin"), c: Principal("eve", "reader")})
    assert tokens.change(new) == [
        "tokens: aaaaaaaa...: user ann -> admin ann",
        "tokens: bbbbbbbb...: user bob -> (none)",
        "tokens: cccccccc...: (none) -> reader eve",
    ]
    assert tokens.change(new) == []
