"""Each user has a uid, the same for good, and nobody else has it."""

from pathlib import Path

import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.process.uids import UidRules, Uids

FEW = UidRules(low=1_700_000_000, high=1_700_000_002)


def uids(folder: Path, rules: UidRules = FEW, borglet: str = "m1") -> Uids:
    (folder / borglet).mkdir(exist_ok=True)
    return Uids(folder / borglet, rules, folder / "claims")


def test_two_users_never_have_the_same(tmp_path: Path) -> None:
    here = uids(tmp_path)
    given = {user: here.of(user) for user in ("ann", "bob", "eve")}
    assert len(set(given.values())) == 3
    assert all(uid == gid and FEW.low <= uid <= FEW.high for uid, gid in given.values())
    assert {user: here.of(user) for user in given} == given
    with pytest.raises(StartFailed, match="no uid is left for the tasks of zoe: 1700000000-1700000002"):
        here.of("zoe")


def test_a_borglet_that_begins_anew_gives_the_same(tmp_path: Path) -> None:
    given = [uids(tmp_path).of(user) for user in ("ann", "bob", "eve")]
    for claim in (tmp_path / "claims").iterdir():  # the machine was booted meanwhile
        claim.unlink()
    later = uids(tmp_path)
    assert [later.of(user) for user in ("ann", "bob", "eve")] == given


def test_borglets_of_one_host_share_its_numbers(tmp_path: Path) -> None:
    one, other = uids(tmp_path), uids(tmp_path, borglet="m2")
    given = {one.of("ann"), other.of("bob"), one.of("eve")}
    assert len(given) == 3
    assert {other.of("ann"), one.of("bob"), other.of("eve")} == given
    with pytest.raises(StartFailed):
        other.of("zoe")


def test_an_account_of_the_machine_is_not_given_to_others(tmp_path: Path) -> None:
    rules = UidRules(low=0, high=0)
    with pytest.raises(StartFailed):
        uids(tmp_path, rules).of("ann")


def test_whom_the_machine_names(tmp_path: Path) -> None:
    rules = UidRules(FEW.low, FEW.low + 1, {"bob": (FEW.low, 7)}, ("eve",))
    here = uids(tmp_path, rules)
    assert (here.of("bob"), here.of("eve")) == ((FEW.low, 7), (0, 0))
    assert here.of("ann") == (FEW.low + 1, FEW.low + 1)


def test_what_is_damaged_is_made_anew(tmp_path: Path) -> None:
    given = uids(tmp_path).of("ann")
    (tmp_path / "m1/uids.json").write_text("{")
    assert uids(tmp_path).of("ann") == given
