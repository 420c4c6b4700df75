"""What a reload takes of two readings of a file, and what it says of them."""

import logging
import re
import ssl
from pathlib import Path

import pytest

from borgish.borglet.settings import LIVE as BORGLET_LIVE
from borgish.borglet.settings import File
from borgish.borglet.settings import Tls as BorgletTls
from borgish.errors import UnsafeConfiguration
from borgish.master.host.settings import LIVE, Settings, Tls, read_settings, reread
from borgish.reload import changes, merged, read_pem, reload
from tests.documents import page
from tests.integration.tls.test_tls_cell import Authority

ROOT = Path(__file__).parents[3]

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


@pytest.mark.parametrize(
    ("live", "file", "daemon"), [(LIVE, "cell.toml", "borgmaster"), (BORGLET_LIVE, "borglet.toml", "borglet")]
)
def test_what_is_live_is_written_down(live: tuple[str, ...], file: str, daemon: str) -> None:
    lines = page("how-to/reload").splitlines()
    at_once = next(line for line in lines if line.startswith(f"| `{daemon}` |")).split("|")[2]
    header = (ROOT / "configs" / file).read_text().partition("\n\n")[0]
    for word in {part for key in live for part in key.split(".")}:
        assert re.search(rf"`\[?{word}\]?`", at_once), word
        assert re.search(rf"\b{word}\b", header), word
    assert "`ca`" in at_once, "which counts at another time than the other files"
    assert set(re.findall(r"`\[(\w+)\]`", at_once)) <= {key.partition(".")[0] for key in live}


def test_any_file_that_tls_takes_has_a_fingerprint(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("cell")
    certificate, key = (tmp_path / "cell.pem").read_text(), (tmp_path / "cell.key").read_text()
    ca, file = (tmp_path / "ca.pem").read_text(), tmp_path / "all.pem"
    texts = (certificate, f"subject=CN=cell\n\n{certificate}", key + certificate, certificate + ca)
    found = set()
    for text in texts:
        file.write_text(text)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, tmp_path / "cell.key")
        found.add(read_pem(str(file)).fingerprint)
    assert len(found) == len(texts)
    with pytest.raises(UnsafeConfiguration, match=r"none\.pem: cannot be read: No such file"):
        read_pem(str(tmp_path / "none.pem"))


def test_authorities_that_are_removed_are_trusted_until_a_restart(tmp_path: Path) -> None:
    ca, cell, files = tmp_path / "ca.pem", str(tmp_path / "cell.pem"), []
    for _ in range(2):
        Authority(tmp_path).sign("cell")
        files.append(ca.read_text())
    loaded = read_pem(cell, str(ca))
    ca.write_text(f"Issuer: CN=authority\n{files[1]}\n{files[0]}")
    both = read_pem(cell, str(ca))
    assert loaded.changes(both) == ["ca: authorities added: 1"]
    loaded = loaded.merged(both)
    ca.write_text(files[0])
    one = read_pem(cell, str(ca))
    lines = ["ca: authorities removed: 1; this needs a restart, they are trusted until then"]
    assert loaded.changes(one) == lines
    assert loaded.merged(one).changes(one) == lines, "it is logged until it is done"


def test_what_fails_when_it_is_read_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str:
        raise UnsafeConfiguration("cell.toml: no")

    def apply(found: str) -> list[str]:
        raise AssertionError(found)

    reload(logging.getLogger("daemon"), fail, apply)
    assert "not reloaded, nothing was changed: cell.toml: no" in caplog.text

    def replaced(_: str) -> list[str]:
        raise OSError(2, "No such file or directory", "cell.pem")

    reload(logging.getLogger("daemon"), str, replaced)
    assert "except for the files under [tls]: they changed meanwhile. Send SIGHUP again" in caplog.text


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
