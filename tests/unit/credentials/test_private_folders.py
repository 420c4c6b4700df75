"""What a daemon's folder may be like, and what not."""

import getpass
import os
from pathlib import Path

import pytest

from borgish.credentials import admin_name, expect_private
from borgish.errors import UnsafeConfiguration


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir(mode=0o700)
    (made / "secret").touch(mode=0o600)
    return made


def test_what_is_for_its_user_alone_passes(folder: Path) -> None:
    expect_private(folder, "secret", "not there", "authority.*.key")
    (folder / "secret").chmod(0o400)
    expect_private(folder, "secret")


def test_what_is_no_secret_may_be_read(folder: Path) -> None:
    (folder / "authority.pem").touch(mode=0o644)
    expect_private(folder, "secret")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_what_others_may_is_refused_with_the_command_that_mends_it(folder: Path, mode: int) -> None:
    (folder / "secret").chmod(mode)
    with pytest.raises(UnsafeConfiguration, match=f"its mode is {mode:04o}") as refused:
        expect_private(folder, "secret")
    assert refused.value.hint.startswith(f"run `chmod 600 {folder / 'secret'}`")
    (folder / "secret").chmod(0o600)
    folder.chmod(0o700 | mode & 0o77)
    with pytest.raises(UnsafeConfiguration, match="is open to others") as refused:
        expect_private(folder, "secret")
    assert refused.value.hint.startswith(f"run `chmod 700 {folder}`")


def test_what_belongs_to_another_is_refused_unless_that_is_root(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    if owner == 0:
        expect_private(folder, "secret")
        return
    with pytest.raises(UnsafeConfiguration, match=f"belongs to uid {owner}, and this runs as 54321"):
        expect_private(folder, "secret")


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 12345"), OSError("No username set")])
def test_a_user_without_a_name_has_an_admin_token(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert admin_name() == "admin"
