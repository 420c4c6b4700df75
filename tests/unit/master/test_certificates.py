"""A master's certificate is signed anew in time, and shown without a restart."""

import asyncio
from pathlib import Path

import pytest

from borgish.clock import Now
from borgish.errors import Conflict, UnsafeConfiguration
from borgish.master import certificates
from borgish.master.certificates import Certificates
from borgish.master.host.settings import Settings, read_settings
from borgish.tls import folder as folders
from borgish.tls.authority import Authority, describe, new_key, request_to_sign
from borgish.tls.bundle import authorities_in, authority_hash
from borgish.tls.folder import Stage, make_authority, read_authority, rotate
from borgish.wire.api_certificates import RotationView

NOW = 1_800_000_000.0
DAY = 86400.0


class Calendar:
    """A clock on which days pass."""

    def __init__(self) -> None:
        self.day = 0.0

    def now(self) -> Now:
        return Now(NOW + self.day * DAY, self.day * DAY)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(certificates, "LOOK_SECONDS", 0.0)
    make_authority(tmp_path, "c1", NOW)
    return tmp_path


def settings_in(folder: Path) -> Settings:
    return Settings("c1", state=str(folder))


def key_in(folder: Path) -> Path:
    return next(folder.glob("authority.*.key"))


def ends_on(folder: Path) -> float:
    return (describe((folder / "master.pem").read_bytes()).validity.ends - NOW) / DAY


async def test_it_is_signed_anew_while_the_master_runs(folder: Path) -> None:
    clock = Calendar()
    held = Certificates(settings_in(folder), clock)
    before, shown = held.pem, asyncio.Event()
    renewing = asyncio.create_task(held.keep_good(shown.set))
    assert ends_on(folder) == 30
    clock.day = 20.5
    await asyncio.wait_for(shown.wait(), 10)
    assert ends_on(folder) == 50.5
    assert held.pem.fingerprint != before.fingerprint
    renewing.cancel()


async def test_one_that_cannot_be_renewed_is_used_to_its_end_and_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Calendar()
    Certificates(settings_in(folder), clock)
    key_in(folder).unlink()
    clock.day = 20.5
    held = Certificates(settings_in(folder), clock)
    assert "is due, and cannot be renewed" in caplog.text
    renewing = asyncio.create_task(held.keep_good(lambda: None))
    caplog.clear()
    for day in (20.9, 21.5, 24.0, 27.5):
        clock.day = day
        for _ in range(10):
            await asyncio.sleep(0)
    renewing.cancel()
    assert [line.split(":")[0] for line in caplog.messages] == [
        "the certificate of this borgmaster ends in 8.5 days",
        "the certificate of this borgmaster ends in 2.5 days",
    ]
    clock.day = 31
    with pytest.raises(UnsafeConfiguration, match="nothing can be signed"):
        Certificates(settings_in(folder), clock)


@pytest.mark.parametrize("listen", ["0.0.0.0:7400", "192.0.2.1:7400", "[::]:7400"])
def test_off_loopback_it_needs_an_authority(tmp_path: Path, listen: str) -> None:
    path = tmp_path / "cell.toml"
    path.write_text(f'name = "c1"\nlisten = "{listen}"\n')
    with pytest.raises(UnsafeConfiguration, match="neither an authority") as refused:
        read_settings(path)
    assert f"borgctl cell init --name c1 --dir {tmp_path}" in refused.value.hint
    (tmp_path / "secret").write_text("of a cell that ran on loopback")
    with pytest.raises(UnsafeConfiguration) as refused:
        read_settings(path)
    assert f"borgctl cell adopt --config {path}" in refused.value.hint
    make_authority(tmp_path, "c1", NOW)
    assert read_settings(path).listen == listen


async def test_authorities_that_another_process_replaces_are_trusted_too(folder: Path) -> None:
    held, shown = Certificates(settings_in(folder), Calendar()), asyncio.Event()
    before = held.bundle_hash
    renewing = asyncio.create_task(held.keep_good(shown.set))
    assert rotate(folder, "c1", NOW) is Stage.BEGUN
    await asyncio.wait_for(shown.wait(), 10)
    assert held.bundle_hash != before
    renewing.cancel()


def test_a_rotation_waits_for_machines_that_are_behind(folder: Path) -> None:
    held = Certificates(settings_in(folder), Calendar())
    late = ["m1"]

    def step() -> RotationView:
        return held.rotate(lambda _: late, lambda: None)

    assert (step().stage, step().stage) == ("begun", "begun"), "the first step waits for nobody"
    assert step() == RotationView("begun", authority_hash(authorities_in(held.bundle)[0]), ("m1",))
    late.clear()
    assert [(view.stage, view.moved) for view in (step(), step())] == [("switched", True), ("none", True)]


def test_a_cell_without_an_authority_has_none_to_replace(tmp_path: Path) -> None:
    held = Certificates(settings_in(tmp_path), Calendar())
    assert (held.files, held.bundle_hash) == (None, "")
    with pytest.raises(Conflict, match="no authority of its own"):
        held.rotate(lambda _: [], lambda: None)


def test_the_authority_signs_by_its_files_of_the_moment_and_is_read_for_that_when_they_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, to_sign, reads = Certificates(settings_in(folder), Calendar()), request("m1"), list[Path]()

    def counted(where: Path) -> Authority:
        reads.append(where)
        return read_authority(where)

    monkeypatch.setattr(folders, "read_authority", counted)
    held.sign("m1", to_sign)
    once, first = len(reads), signer_of(held)
    assert (signer_of(held), len(reads)) == (first, once)
    rotate(folder, "c1", NOW)
    rotate(folder, "c1", NOW)
    assert signer_of(held) != first
    key = next(path for path in folder.glob("authority.*.key") if signer_of(held) in path.name)
    key.chmod(0o644)
    with pytest.raises(UnsafeConfiguration, match="open to others"):
        held.sign("m1", to_sign)
    key.chmod(0o600)
    elsewhere = key.rename(folder / "elsewhere")
    for _ in range(2):
        with pytest.raises(UnsafeConfiguration, match="nothing can be signed"):
            held.sign("m1", to_sign)
    elsewhere.rename(key)
    held.sign("m1", to_sign)
    before = len(reads)
    held.sign("m1", to_sign)
    assert len(reads) == before


def request(machine: str) -> str:
    return request_to_sign(new_key(), machine).decode()


def signer_of(held: Certificates) -> str:
    return describe(held.sign("m1", request("m1")).encode()).signer
