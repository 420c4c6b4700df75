"""Masters of one state folder make each other known to clients, and forget who is gone."""

import json
import logging
import os
from pathlib import Path

import pytest

from borgish.errors import UnsafeConfiguration
from borgish.master.host import members
from borgish.master.host.members import MemberList
from borgish.master.process import unlisted

A, B, C = "http://127.0.0.1:7400", "http://127.0.0.1:7401", "http://127.0.0.1:7402"


def told(folder: Path) -> tuple[str, list[str]]:
    """Return what clients read: whom they ask first, and all there are."""
    read = json.loads((folder / "client.json").read_text())
    return read["url"], read["masters"]


def entered(folder: Path, address: str, *, leads: bool = False) -> MemberList:
    roster = MemberList(folder)
    roster.enter(address)
    if leads:
        roster.lead()
    return roster


def killed(roster: MemberList) -> None:
    """Let go of what the kernel lets go of when a process dies, and of nothing else."""
    os.close(roster._lock)
    roster._lock = -1


def test_one_alone_is_told_as_ever(tmp_path: Path) -> None:
    one = entered(tmp_path, A, leads=True)
    assert told(tmp_path) == (A, [])
    one.leave()
    assert told(tmp_path) == (A, [])
    assert (tmp_path / "client.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "masters").stat().st_mode & 0o777 == 0o700


def test_a_standby_is_known_beside_the_leader_which_is_asked_first(tmp_path: Path) -> None:
    entered(tmp_path, B, leads=True)
    standby = entered(tmp_path, A)
    assert told(tmp_path) == (B, [A, B])
    standby.lead()
    assert told(tmp_path) == (A, [A, B])


def test_who_ends_in_order_is_known_no_more(tmp_path: Path) -> None:
    first, second, third = entered(tmp_path, A, leads=True), entered(tmp_path, B), entered(tmp_path, C)
    first.leave()
    assert told(tmp_path) == (B, [B, C])
    third.leave()
    assert told(tmp_path) == (B, [])
    second.leave()
    second.leave()
    assert told(tmp_path) == (B, [])


def test_who_was_killed_is_known_until_the_next_one_looks(tmp_path: Path) -> None:
    first, second = entered(tmp_path, A, leads=True), entered(tmp_path, B)
    killed(first)
    assert told(tmp_path) == (A, [A, B])  # clients go on to the next one
    second.lead()
    assert told(tmp_path) == (B, [])
    again = entered(tmp_path, A)
    assert told(tmp_path) == (B, [A, B])
    again.leave()
    second.leave()
    assert [path.name for path in (tmp_path / "masters").iterdir()] == ["lock"]


def test_what_the_file_names_is_told_whoever_lives(tmp_path: Path) -> None:
    one = MemberList(tmp_path, "ca.pem", (B, C))
    one.enter(B)
    one.lead()
    assert told(tmp_path) == (B, [B, C])
    assert json.loads((tmp_path / "client.json").read_text())["ca"] == "ca.pem"
    one.leave()
    assert told(tmp_path) == (B, [B, C])


def test_a_damaged_file_for_clients_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "client.json").write_text('{"url": ')
    entered(tmp_path, A)
    assert told(tmp_path) == (A, [])


def test_two_that_say_to_be_at_one_address_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = entered(tmp_path, A, leads=True)
    with caplog.at_level(logging.WARNING):
        entered(tmp_path, A).leave()
    assert f"says that it is at {A}, too" in caplog.text
    assert told(tmp_path) == (A, [])
    first.leave()


def test_one_who_was_paused_in_its_turn_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "TURN_SECONDS_MAX", 0.02)
    paused = MemberList(tmp_path)
    with paused._exclusive():
        entered(tmp_path, A, leads=True)
    assert told(tmp_path) == (A, [])


def test_a_folder_that_is_not_ours_is_said(tmp_path: Path) -> None:
    (tmp_path / "masters").write_text("in the way")
    with pytest.raises(UnsafeConfiguration, match="masters") as caught:
        entered(tmp_path, A)
    assert caught.value.exit_code == 74


def test_a_list_without_the_own_address_is_said() -> None:
    assert unlisted(A, ()) == ""
    assert unlisted(A, (B, A)) == ""
    assert f"at {A}, which is not in `masters` of its file ({B}, {C})" in unlisted(A, (B, C))
