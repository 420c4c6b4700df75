"""A cell that keeps little: checkpoints as its journal grows, and a journal that is pruned behind them."""

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, submitted

LITTLE = """
[checkpoints]
every_minutes = 0.01
every_entries = 3
keep = {latest = 2, hourly = 0, daily = 1}

[journal]
keep_days = 0.00001  # a second
"""
ONE = "name: one\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"


def test_old_history_goes_by_rule_and_what_is_left_is_told(own: RealCell) -> None:
    with (own.folder / "cell.toml").open("a") as file:
        file.write(LITTLE)
    own.kill("borgmaster")
    own.ok("up")
    submitted(own, ONE)
    for tasks in (2, 3, 4, 5):
        own.ok("job", "scale", "one", tasks)
    own.ok("job", "wait", "one", "--settle", 0)

    def begins() -> int:
        return int(own.items("history", "-n", "10000")[0]["position"])

    wait_until(lambda: begins() > 1, PATIENCE_SECONDS)

    def earliest_is_told() -> bool:  # it moves on until the last change is in two checkpoints
        said = own.borgctl("job", "list", "--at", 1)
        assert said.code == 1
        assert "position 1 can no longer be reconstructed" in said.err
        earliest = int(said.err.rpartition("The earliest is ")[2])
        return own.borgctl("job", "list", "--at", earliest).code == 0

    wait_until(earliest_is_told, PATIENCE_SECONDS)
    said = own.borgctl("history", "--until", "1h")
    assert (said.code, "is no longer kept" in said.err) == (1, True)
    assert "the journal begins at" in own.borgctl("history", "--cell").err
    assert len(own.items("task", "list", "one")) == 5
    own.kill("borgmaster")
    own.ok("up")
    assert len(own.items("task", "list", "one")) == 5
