from pathlib import Path

from borgish.borglet.facts import conditions, free_bytes
from borgish.wire.link import ConditionKind


def test_a_state_folder_that_cannot_be_looked_at_is_a_condition(tmp_path: Path) -> None:
    (found,) = conditions((), tmp_path / "unmounted", (), free_bytes)
    assert found.kind is ConditionKind.DISK_PRESSURE
    assert "cannot be looked at: No such file" in found.text
