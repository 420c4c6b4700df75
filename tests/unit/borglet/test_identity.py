"""A machine's certificate: asked for with one key, kept whole, and known to be due."""

from pathlib import Path

import pytest

from borgish.borglet.joining.identity import Identity, identity_in
from borgish.borglet.settings import load
from borgish.errors import Invalid, Unauthenticated, UnsafeConfiguration
from borgish.tls.authority import Authority, describe, new_key
from borgish.tls.bundle import bundle_hash

NOW = 1_800_000_000.0
DAY = 86400.0


class Master:
    """Signs as a master does."""

    def __init__(self) -> None:
        self.authority = Authority.make("c1", new_key(), NOW)

    @property
    def bundle(self) -> str:
        return self.authority.pem.decode()

    def sign(self, to_sign: str, machine: str = "m1") -> str:
        return self.authority.sign_machine("c1", machine, to_sign.encode(), NOW).decode()


def joined(folder: Path, master: Master) -> Identity:
    identity = Identity(folder, "m1")
    identity.keep("c1", master.sign(identity.to_sign()), master.bundle)
    return identity


def test_what_is_asked_for_again_is_for_the_same_key(tmp_path: Path) -> None:
    master, identity = Master(), Identity(tmp_path, "m1")
    asked = identity.to_sign()
    again = Identity(tmp_path, "m1").to_sign()
    assert describe(master.sign(asked).encode()).names == describe(master.sign(again).encode()).names
    assert identity_in(tmp_path, "m1") is None
    identity.keep("c1", master.sign(asked), master.bundle)
    assert identity_in(tmp_path, "m1") is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["authority.pem", "machine.pem"]
    identity.listener()
    identity.calling()


def test_what_is_another_machines_or_no_certificate_is_not_kept(tmp_path: Path) -> None:
    master, identity = Master(), Identity(tmp_path, "m1")
    with pytest.raises(Invalid, match="another machine's"):
        identity.keep("c1", master.sign(identity.to_sign(), "m2"), master.bundle)
    with pytest.raises(UnsafeConfiguration):
        identity.keep("c1", "nonsense", master.bundle)
    with pytest.raises(Invalid):
        identity.keep("c1", master.sign(identity.to_sign()), "nonsense")
    assert identity_in(tmp_path, "m1") is None


def test_when_it_is_due(tmp_path: Path) -> None:
    master = Master()
    identity = joined(tmp_path, master)
    known = bundle_hash(master.authority.pem)
    assert identity.settled() == known
    assert not identity.is_due(NOW + 16 * DAY, known)
    assert identity.is_due(NOW + 20.1 * DAY, known)
    assert identity.is_due(NOW, "another")
    identity.trust(Master().authority.pem)
    assert identity.is_due(NOW), "another authority signs now"
    identity.expect_good(NOW + 29 * DAY)
    with pytest.raises(Unauthenticated, match="is over") as refused:
        identity.expect_good(NOW + 30 * DAY)
    assert "borgctl machine invite m1" in refused.value.hint


def test_a_machine_needs_a_token_or_a_certificate(tmp_path: Path) -> None:
    path = tmp_path / "borglet.toml"
    path.write_text('machine = "m1"\nmaster = "https://192.0.2.1:7400"\nlisten = "0.0.0.0:7401"\n')
    with pytest.raises(UnsafeConfiguration, match="neither a certificate"):
        load(path)
    path.write_text('machine = "m1"\nmaster = "https://192.0.2.1:7400"\n')
    with pytest.raises(UnsafeConfiguration, match="no join_token_file") as refused:
        load(path)
    assert "borgctl machine invite" in refused.value.hint
    (tmp_path / "state").mkdir()
    joined(tmp_path / "state", Master())
    assert load(path).join_token_file is None
