"""The files of an authority: what is made once, what is signed anew, and what cannot be."""

from pathlib import Path

import pytest

from borgish.errors import UnsafeConfiguration
from borgish.tls.authority import describe, key_id_of
from borgish.tls.bundle import authorities_in
from borgish.tls.folder import (
    Stage,
    hosts_of_master,
    make_authority,
    read_authority,
    read_bundle,
    renew_master,
    rotate,
    stage_of,
)

NOW = 1_800_000_000.0
DAY = 86400.0
HOSTS = hosts_of_master("192.0.2.1")


def key_of(folder: Path) -> Path:
    return next(folder.glob("authority.*.key"))


def test_an_authority_is_made_once(tmp_path: Path) -> None:
    assert make_authority(tmp_path, "c1", NOW).sha256 == make_authority(tmp_path, "c1", NOW + DAY).sha256


def test_a_master_is_signed_anew_when_it_is_due_or_is_reached_otherwise(tmp_path: Path) -> None:
    make_authority(tmp_path, "c1", NOW)
    first = renew_master(tmp_path, "c1", HOSTS, NOW)
    assert renew_master(tmp_path, "c1", HOSTS, NOW + 19 * DAY) == first
    assert renew_master(tmp_path, "c1", HOSTS, NOW + 21 * DAY).ends == NOW + 51 * DAY
    before = (tmp_path / "master.pem").read_bytes()
    renew_master(tmp_path, "c1", HOSTS | {"host-b"}, NOW + 21 * DAY)
    assert (tmp_path / "master.pem").read_bytes() != before
    assert "host-b" in describe((tmp_path / "master.pem").read_bytes()).names


def test_a_master_shows_the_authority_that_signed_it(tmp_path: Path) -> None:
    make_authority(tmp_path, "c1", NOW)
    for _ in range(3):
        renew_master(tmp_path, "c1", HOSTS, NOW)
        shown = authorities_in((tmp_path / "master.pem").read_bytes())
        assert shown[1:] == read_bundle(tmp_path)[:1]
        assert describe(shown[0]).signer == key_id_of(shown[1])
        rotate(tmp_path, "c1", NOW)


def test_the_names_of_a_host_are_written_as_usual() -> None:
    assert {"::1", "192.0.2.1"} <= hosts_of_master("192.0.2.1", "https://[0::1]:7400")
    assert "0.0.0.0" not in hosts_of_master("0.0.0.0", "https://cell.example:7400")
    assert "cell.example" in hosts_of_master("0.0.0.0", "https://cell.example:7400")


def test_a_key_that_is_kept_elsewhere_is_missed_when_it_is_needed(tmp_path: Path) -> None:
    make_authority(tmp_path, "c1", NOW)
    renew_master(tmp_path, "c1", HOSTS, NOW)
    key_of(tmp_path).rename(tmp_path / "elsewhere")
    renew_master(tmp_path, "c1", HOSTS, NOW + DAY)
    with pytest.raises(UnsafeConfiguration, match="nothing can be signed"):
        renew_master(tmp_path, "c1", HOSTS, NOW + 21 * DAY)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_authority(tmp_path, "c1", NOW)
    key_of(tmp_path).chmod(0o644)
    with pytest.raises(UnsafeConfiguration, match="is open to others"):
        read_authority(tmp_path)


def test_two_keys_and_no_authority_are_not_guessed_at(tmp_path: Path) -> None:
    make_authority(tmp_path, "c1", NOW)
    (tmp_path / "authority.pem").unlink()
    (tmp_path / "authority.0123456789abcdef.key").write_bytes(key_of(tmp_path).read_bytes())
    with pytest.raises(UnsafeConfiguration, match=r"has the keys .* and no authority\.pem"):
        make_authority(tmp_path, "c1", NOW)


def test_a_damaged_authority_is_named(tmp_path: Path) -> None:
    make_authority(tmp_path, "c1", NOW)
    (tmp_path / "authority.pem").write_text("damaged")
    with pytest.raises(UnsafeConfiguration, match=r"authority\.pem cannot be used"):
        read_authority(tmp_path)


def test_a_rotation_goes_on_where_it_was_and_drops_the_old_key_last(tmp_path: Path) -> None:
    old = make_authority(tmp_path, "c1", NOW)
    renew_master(tmp_path, "c1", HOSTS, NOW)
    assert stage_of(bundle_in(tmp_path)) is Stage.NONE

    assert rotate(tmp_path, "c1", NOW) is Stage.BEGUN is stage_of(bundle_in(tmp_path))
    assert read_authority(tmp_path).sha256 == old.sha256
    before = renew_master(tmp_path, "c1", HOSTS, NOW + DAY)
    assert before.ends == NOW + 30 * DAY, "nothing is signed anew while the old one signs"

    assert rotate(tmp_path, "c1", NOW) is Stage.SWITCHED is stage_of(bundle_in(tmp_path))
    new = read_authority(tmp_path)
    assert new.sha256 != old.sha256
    assert renew_master(tmp_path, "c1", HOSTS, NOW + DAY).ends == NOW + 31 * DAY

    assert len(list(tmp_path.glob("authority.*.key"))) == 2
    assert rotate(tmp_path, "c1", NOW) is Stage.NONE is stage_of(bundle_in(tmp_path))
    assert read_authority(tmp_path).sha256 == new.sha256
    assert len(list(tmp_path.glob("authority.*.key"))) == 1


def test_a_rotation_that_was_cut_off_leaves_no_key_behind(tmp_path: Path) -> None:
    make_authority(tmp_path, "c1", NOW)
    (tmp_path / "authority.0123456789abcdef.key").write_bytes(key_of(tmp_path).read_bytes())
    for _ in range(3):
        rotate(tmp_path, "c1", NOW)
    assert len(list(tmp_path.glob("authority.*.key"))) == 1


def bundle_in(folder: Path) -> bytes:
    return (folder / "authority.pem").read_bytes()
