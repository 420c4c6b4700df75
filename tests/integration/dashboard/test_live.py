"""The dashboard in a real terminal, against a master that comes and goes."""

import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from borgish.cli import borgctl
from borgish.client import Client
from borgish.dashboard.app import run
from borgish.errors import Unauthenticated, Unreachable
from borgish.wire.api import SummaryView, TaskList
from tests.integration.dashboard.streaming import StreamingMaster, serving, terminal
from tests.terminal import Terminal
from tests.unit.dashboard import answers, summaries

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")
SHOW_CURSOR, LEAVE_SCREEN, WRAP = "\x1b[?25h", "\x1b[?1049l", "\x1b[?7h"


@pytest.fixture
def master() -> Iterator[StreamingMaster]:
    with serving(StreamingMaster(summaries.busy())) as served:
        yield served


def at(position: int) -> SummaryView:
    made = summaries.busy()
    status = summaries.status(position=position)
    return SummaryView(status, made.machines, made.jobs, made.pending, made.events)


def is_restored(seen: Terminal) -> bool:
    left = all(seen.output.rfind(code) > seen.output.rfind("cell local") for code in (SHOW_CURSOR, WRAP))
    return left and LEAVE_SCREEN in seen.output and seen.modes == seen.modes_before


def test_it_shows_frames_survives_a_broken_stream_and_quits_on_q(master: StreamingMaster) -> None:
    with terminal(master.url) as seen:
        seen.until(lambda: seen.shows("position 4217") and seen.shows("q quit"))
        seen.until(lambda: seen.is_full(80, 24))
        assert seen.modes != seen.modes_before
        master.tell(at(5000))
        seen.until(lambda: seen.shows("position 5000"))
        master.leave()
        seen.until(lambda: seen.shows("not reachable since") and seen.shows("position 5000"))
        master.away = False
        master.tell(at(6000))
        seen.until(lambda: seen.shows("position 6000") and seen.shows("q quit"))
        assert not seen.shows("not reachable")
        assert master.last_ids[0] == ""
        assert master.last_ids[-1] == "3.1"
        seen.press("q")
        assert seen.ended() == 0
        assert is_restored(seen)


def test_ctrl_c_quits(master: StreamingMaster) -> None:
    with terminal(master.url) as seen:
        seen.until(lambda: seen.shows("q quit"))
        seen.press("\x03")
        assert seen.ended() == 0
        assert is_restored(seen)


def test_sigterm_restores_the_terminal(master: StreamingMaster) -> None:
    with terminal(master.url) as seen:
        seen.until(lambda: seen.shows("q quit"))
        seen.process.send_signal(signal.SIGTERM)
        assert seen.ended() == 128 + signal.SIGTERM
        assert is_restored(seen)


def test_an_unexpected_error_restores_the_terminal_and_is_shown(master: StreamingMaster) -> None:
    broken = (
        "real = app.draw\ndef broken(walk, known, *size):\n  assert known.summary.status.position < 9999\n"
    )
    with terminal(master.url, before=f"{broken}  return real(walk, known, *size)\napp.draw = broken") as seen:
        seen.until(lambda: seen.shows("q quit"))
        master.tell(at(9999))
        assert seen.ended() == 1
        assert is_restored(seen)
        assert seen.output.rfind("AssertionError") > seen.output.rfind(LEAVE_SCREEN)


def test_the_frame_follows_the_size_of_the_terminal(master: StreamingMaster) -> None:
    with terminal(master.url) as seen:
        seen.until(lambda: seen.is_full(80, 24))
        seen.resize(200, 60)
        seen.until(lambda: seen.is_full(200, 60))
        assert seen.shows("│ PENDING")
        seen.resize(60, 12)
        seen.until(lambda: seen.is_full(60, 12))


def test_it_is_drawn_anew_when_the_size_is_what_it_was_and_on_ctrl_l(master: StreamingMaster) -> None:
    with terminal(master.url) as seen:
        seen.until(lambda: seen.is_full(80, 24))

        def frames() -> int:
            return seen.output.count("position 4217")

        drawn = frames()
        seen.resize(10, 3)
        seen.resize(80, 24)
        seen.until(lambda: frames() > drawn)
        seen.until(lambda: seen.is_full(80, 24))
        drawn = frames()
        seen.press("\x0c")
        seen.until(lambda: frames() > drawn)


def test_it_is_drawn_anew_when_that_is_asked_for_while_it_is_drawn(master: StreamingMaster) -> None:
    before = (
        "import os, signal\nfrom rich.live import Live\nreal = Live.update\n"
        "def once(self, *arguments, **named):\n  Live.update = real\n  real(self, *arguments, **named)\n"
        "  os.kill(os.getpid(), signal.SIGWINCH)\nLive.update = once"
    )
    with terminal(master.url, before=before) as seen:
        seen.until(lambda: seen.output.count("position 4217") > 1)


def test_p_pauses_and_goes_on(master: StreamingMaster) -> None:
    with terminal(master.url) as seen:
        seen.until(lambda: seen.shows("q quit"))
        seen.press("p")
        seen.until(lambda: seen.shows("paused: p goes on"))
        seen.until(lambda: bool(master.last_ids))  # the stream is open: it will have what is told
        master.tell(at(5000))
        master.leave()
        seen.until(lambda: seen.shows("paused: p goes on | not reachable since"))
        assert seen.shows("position 4217")
        seen.press("p")
        seen.until(lambda: seen.shows("position 5000"))


QUICKER = "from borgish.dashboard import pulse\npulse.QUIET_SECONDS, app.SLOW_SECONDS = 0.1, 0.6"


def test_a_master_that_freezes_is_said_to_and_no_more_when_it_goes_on(master: StreamingMaster) -> None:
    with terminal(master.url, before=QUICKER) as seen:
        seen.until(lambda: master.asked.count("/v1/status") > 2)  # nothing changes, and it answers
        assert "no answer" not in seen.output
        master.is_awake.clear()
        seen.until(lambda: seen.shows("no answer for 1 s"))
        seen.until(lambda: seen.shows("no answer for 2 s") and seen.shows("position 4217"))
        master.is_awake.set()
        seen.until(lambda: not seen.shows("no answer") and seen.is_full(80, 24))


LOG = "/v1/tasks/ann/web/3/logs"


def test_what_is_written_meanwhile_does_not_move_the_match_somebody_looks_at(master: StreamingMaster) -> None:
    master.answers["/v1/tasks"] = msgspec.json.encode(TaskList((answers.task(name="ann/web/3", index=3),)))
    master.answers["/v1/tasks/ann/web/3"] = msgspec.json.encode(answers.task(name="ann/web/3", index=3))
    master.answers[LOG] = b"".join(b"line %d%s\n" % (i, b" odd" * (i % 9 == 0)) for i in range(100))
    with terminal(master.url) as seen:
        seen.until(lambda: seen.shows("q quit"))
        seen.press("2")
        seen.until(lambda: seen.shows("ann/web/3 "))
        seen.press("l")
        seen.until(lambda: seen.shows("line 99 odd"))
        seen.press("/ODD\rN")
        seen.until(lambda: seen.shows("'ODD': match 11 of 12") and seen.is_full(80, 24))
        before = seen.screen
        master.answers[LOG] = b"".join(b"other %d odd\n" % i for i in range(500))
        read = len(master.asked)
        seen.until(lambda: master.asked[read:].count(LOG) > 1)  # that before the last one was read whole
        seen.press("?")
        seen.until(lambda: seen.shows("GOING ABOUT"))
        seen.press("q")
        seen.until(lambda: seen.shows("'ODD': match 11 of 12") and seen.is_full(80, 24))
        assert seen.screen[2:] == before[2:]
        seen.press("G")
        seen.until(lambda: seen.shows("other 499 odd") and seen.shows("'ODD': 500 matches"))
        seen.press("\x1b")
        seen.until(lambda: not seen.shows("'ODD'") and seen.shows("LOG OF"))


def test_stop_keys_do_not_leave_the_screen_half_way(master: StreamingMaster) -> None:
    with terminal(master.url) as seen:
        seen.until(lambda: seen.shows("q quit"))
        seen.press("\x1a\x1c")
        master.tell(at(5000))
        seen.until(lambda: seen.shows("position 5000"))


@pytest.mark.parametrize("no_color", [False, True])
def test_colours_only_where_they_are_wanted(master: StreamingMaster, no_color: bool) -> None:
    with terminal(master.url, once=True, env={"NO_COLOR": "1"} if no_color else {}) as seen:
        assert seen.ended() == 0
        assert "MACHINES 4" in seen.output
        assert bool(COLOUR.search(seen.output)) is not no_color
        assert LEAVE_SCREEN not in seen.output


def test_a_terminal_without_unicode_gets_ascii(master: StreamingMaster) -> None:
    with terminal(master.url, once=True, env={"PYTHONIOENCODING": "ascii", "TERM": "dumb"}) as seen:
        assert seen.ended() == 0
        assert seen.output.isascii()
        assert "\x1b" not in seen.output
        assert "PPPP" in seen.output


def test_once_for_a_file_is_plain_text(master: StreamingMaster, capsys: pytest.CaptureFixture[str]) -> None:
    master.view = summaries.hostile()
    assert run(Client(master.url, "t"), once=True) == 0
    rows = capsys.readouterr().out.split("\n")
    assert all(row.isprintable() for row in rows)
    assert max(map(cell_len, rows)) <= 100
    assert any("PENDING" in row for row in rows)


def test_where_there_is_no_terminal_one_frame_is_enough(
    master: StreamingMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Client(master.url, "t"), once=False) == 0
    assert "MACHINES 4" in capsys.readouterr().out
    assert master.last_ids == []
    assert [thread.name for thread in threading.enumerate() if thread.name == "summaries"] == []


def test_an_absent_master_and_a_wrong_token_are_errors_of_the_command(master: StreamingMaster) -> None:
    with pytest.raises(Unauthenticated):
        run(Client(master.url, "wrong"), once=True)
    master.away = True
    with pytest.raises(Unreachable) as raised:
        run(Client(master.url, "t"), once=False)
    assert raised.value.exit_code == 4
    assert raised.value.hint


def test_the_command_turns_the_outcome_into_words_and_an_exit_code(
    master: StreamingMaster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.token").write_text("t\n")
    monkeypatch.setenv("BORGISH_URL", master.url)
    monkeypatch.setenv("BORGISH_TOKEN_FILE", str(tmp_path / "a.token"))
    assert borgctl.run(["dashboard", "--once"]) == 0
    assert "MACHINES 4" in capsys.readouterr().out
    master.away = True
    assert borgctl.run(["dashboard", "--once"]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert "error:" in said.err
    assert "hint:" in said.err
