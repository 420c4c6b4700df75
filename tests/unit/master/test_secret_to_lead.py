"""By which secret a master leads the cell of a database: its own, or none."""

from pathlib import Path

import msgspec
import pytest

from borgish.audit import AuditChain, AuditEntry, AuditNote
from borgish.credentials import make_credentials, write_private
from borgish.errors import UnsafeConfiguration
from borgish.master.host.preflight import TakeOver
from borgish.master.past.audit_log import is_of_another_secret
from borgish.master.process import credentials_to_lead
from borgish.store.memory import Disk, MemoryStore

NOTE = AuditNote(1.0, "root", "admin", "", "", "kill", "ann/web")


def written(secret: str, count: int, last: AuditEntry | None = None) -> list[AuditEntry]:
    return AuditChain(secret, last).add([(NOTE, 0)] * count)


def store_of(entries: list[AuditEntry]) -> MemoryStore:
    return MemoryStore("c1", disk=Disk("c1", audit=entries))


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_another_secret_is_told_by_the_audit_log(count: int) -> None:
    store = store_of(written("one" * 20, count))
    assert not is_of_another_secret(store, "one" * 20)
    assert is_of_another_secret(store, "two" * 20) == (count > 0)


@pytest.mark.parametrize("which", [0, -1])
def test_an_entry_that_was_changed_is_no_other_secret(which: int) -> None:
    entries = written("one" * 20, 5)
    entries[which] = msgspec.structs.replace(entries[which], digest="f" * 64)
    assert not is_of_another_secret(store_of(entries), "one" * 20)


def test_a_log_that_a_new_secret_goes_on_with_is_of_both() -> None:
    old = written("one" * 20, 3)
    store = store_of([*old, *written("two" * 20, 2, old[-1])])
    assert not is_of_another_secret(store, "one" * 20)
    assert not is_of_another_secret(store, "two" * 20)


def test_a_new_cell_gets_a_secret(tmp_path: Path) -> None:
    made = credentials_to_lead(store_of([]), tmp_path, TakeOver.NOTHING)
    assert made == credentials_to_lead(store_of(written(made.secret, 3)), tmp_path, TakeOver.NOTHING)


@pytest.mark.parametrize("other", [None, "two" * 20])
def test_another_secret_leads_only_when_told_to(tmp_path: Path, other: str | None) -> None:
    store, file = store_of(written("one" * 20, 3)), tmp_path / "secret"
    if other is not None:
        write_private(file, other + "\n")
    for take_over in (TakeOver.NOTHING, TakeOver.OLDER_STORE):
        with pytest.raises(UnsafeConfiguration, match="the cell in this database") as refused:
            credentials_to_lead(store, tmp_path, take_over)
        assert "--take-over" in refused.value.hint
        assert file.exists() == (other is not None), "none was made"
    led = credentials_to_lead(store, tmp_path, TakeOver.MACHINES)
    assert led == make_credentials(tmp_path)
    assert other in (None, led.secret)
