from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.cell.free_space import FreeSpace, Level
from borgish.cli.commands.status import in_full
from borgish.master.health import Metrics
from tests.unit.api.cells import NOW, small_cell, small_observed


def test_the_figures_are_of_the_cell_and_their_number_does_not_grow_with_it() -> None:
    metrics = Metrics()
    status = status_view(small_cell(), small_observed(), Tally(), Daemon(NOW.wall, "memory"), NOW)
    metrics.turn(0.003)
    text = metrics.render(status).decode()
    for line in (
        "borgish_journal_position 20.0",
        'borgish_machines{state="down"} 1.0',
        'borgish_tasks{state="pending"} 1.0',
        "borgish_tasks_up 2.0",
        'borgish_turn_seconds_bucket{le="0.005"} 1.0',
        'borgish_turn_seconds_bucket{le="0.0025"} 0.0',
    ):
        assert line in text
    assert "ann" not in text
    assert "borgish_refusing 0.0" in text
    assert "borgish_store_free_bytes NaN" in text


def test_a_store_without_room_is_a_figure() -> None:
    daemon = Daemon(NOW.wall, "sqlite", free_space=FreeSpace(Level.LOW, 300, 512))
    status = status_view(small_cell(), small_observed(), Tally(), daemon, NOW)
    text = Metrics().render(status).decode()
    assert "borgish_refusing 1.0" in text
    assert "borgish_store_free_bytes 300.0" in text


def test_who_is_turned_away_is_a_line_of_status_each() -> None:
    busy = ("no more work of ann is taken in: 2 commands wait", "4 requests of bob wait already")
    daemon = Daemon(NOW.wall, "sqlite", busy=busy)
    status = status_view(small_cell(), small_observed(), Tally(), daemon, NOW)
    lines = in_full(status, "http://h", 0).splitlines()
    shown = [line.partition(" ") for line in lines if line.startswith("busy")]
    assert [text.strip() for _, _, text in shown] == list(busy)
