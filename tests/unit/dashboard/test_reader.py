"""What a place asks for is fetched, again where that is worth it, and no longer when somebody has gone on."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from borgish.client import Client
from borgish.clock import SystemClock
from borgish.dashboard.asks import Answer, Ask
from borgish.dashboard.reader import LINE_BYTES_MAX, Log, Reader
from borgish.errors import BorgishError, NotFound, TooManyRequests, Unreachable

PATIENCE_SECONDS = 30.0


class Master(Client):
    """Answers each path with how often it was asked for; waits before it does where it is told to."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.asked: list[str] = []
        self.params: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.refused = ""
        self.error: BorgishError = NotFound("it is not there")

    def get(self, path: str, params: Any, answer: Any) -> Any:
        self.asked.append(path)
        self.params.append(params)
        assert self.gate.wait(PATIENCE_SECONDS)
        if path == self.refused:
            raise self.error
        return self.asked.count(path)


class Heard:
    """What is rung when there is something new."""

    def __init__(self) -> None:
        self.rung: queue.Queue[None] = queue.Queue()

    def __call__(self) -> None:
        self.rung.put(None)

    def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.rung.get(timeout=PATIENCE_SECONDS)


def ask(path: str, every_seconds: float = 0.01) -> Ask:
    return Ask(path, (), int, every_seconds)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def reader(master: Master, heard: Heard) -> Iterator[Reader]:
    made = Reader(master, SystemClock(), heard)
    made.start()
    yield made
    master.gate.set()
    made.close()


def test_it_asks_again_as_often_as_that_is_worth(reader: Reader, master: Master, heard: Heard) -> None:
    often, rarely = ask("/often"), ask("/rarely", 3600.0)
    reader.want((often, rarely), fixed=False)
    heard.until(lambda: master.asked.count("/often") >= 5)
    assert reader.answer.views[1] == 1
    assert master.asked.count("/rarely") == 1


def test_what_is_of_the_past_is_asked_once(reader: Reader, master: Master, heard: Heard) -> None:
    reader.want((ask("/past"),), fixed=True)
    heard.until(lambda: reader.answer.views == (1,))
    reader.want((ask("/past"),), fixed=True)  # the same again
    reader.want((ask("/live"),), fixed=False)
    heard.until(lambda: reader.answer.views == (3,))
    assert master.asked.count("/past") == 1


def test_an_answer_that_nobody_waits_for_any_more_is_not_shown(
    reader: Reader, master: Master, heard: Heard
) -> None:
    master.gate.clear()
    reader.want((ask("/slow", 3600.0),), fixed=False)
    while not master.asked:
        pass
    reader.want((ask("/next", 3600.0),), fixed=False)
    master.gate.set()
    heard.until(lambda: bool(reader.answer.views))
    assert [each.path for each in reader.answer.asks] == ["/next"]


def test_an_error_is_an_answer_and_is_tried_again(
    reader: Reader, master: Master, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.dashboard.reader.FAILED_AGAIN_SECONDS", 0.01)
    master.refused = "/gone"
    reader.want((ask("/there", 3600.0), ask("/gone")), fixed=True)
    heard.until(lambda: reader.answer.error is not None)
    assert reader.answer.views == ()
    master.refused = ""
    heard.until(lambda: reader.answer.error is None)
    assert len(reader.answer.views) == 2


@pytest.mark.parametrize(
    ("error", "kept"),
    [(Unreachable("refused"), 2), (TooManyRequests("later"), 2), (NotFound("forgotten"), 0)],
)
def test_what_was_answered_stays_while_nobody_answers(
    reader: Reader, master: Master, heard: Heard, error: BorgishError, kept: int
) -> None:
    reader.want((ask("/once", 3600.0), ask("/job", 0.2)), fixed=False)
    heard.until(lambda: bool(reader.answer.views))
    master.error, master.refused = error, "/job"
    heard.until(lambda: reader.answer.error is not None)
    assert len(reader.answer.views) == kept
    assert reader.answer.error is error


def test_half_an_answer_is_none(master: Master, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task whose job was forgotten is not there, and what it used is."""
    monkeypatch.setattr("borgish.dashboard.reader.FAILED_AGAIN_SECONDS", 0.01)
    master.refused = "/task"
    given: list[Answer] = []

    def noted() -> None:
        given.append(made.answer)
        heard()

    made = Reader(master, SystemClock(), noted)
    made.start()
    made.want((ask("/task"), ask("/usage")), fixed=False)
    while master.asked.count("/task") < 3:
        pass
    master.refused = ""
    heard.until(lambda: given[-1].error is None)
    made.close()
    assert not any(None in each.views for each in given)


def test_it_is_known_since_when_an_answer_is_waited_for(reader: Reader, master: Master, heard: Heard) -> None:
    master.gate.clear()
    reader.want((ask("/slow", 3600.0),), fixed=False)
    while not master.asked:
        pass
    assert reader.asking_since is not None
    master.gate.set()
    heard.until(lambda: bool(reader.answer.views))
    assert reader.asking_since is None


class Task(Client):
    """A task whose output comes in pieces; each run of it is one stream."""

    def __init__(self, *runs: tuple[bytes, ...]) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.runs = iter(runs)
        self.closed = threading.Event()
        self.paths: list[str] = []

    def stream(
        self,
        path: str,
        params: Any = None,
        body: object = None,
        opened: Callable[[Callable[[], None]], None] | None = None,
    ) -> Iterator[bytes]:
        self.paths.append(path)
        if opened is not None:
            opened(self.closed.set)
        pieces = next(self.runs, None)
        if pieces is not None:
            return iter(pieces)
        assert self.closed.wait(PATIENCE_SECONDS)
        raise NotFound("its machine has no output of it")


def log_of(task: Task, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr("borgish.dashboard.reader.AGAIN_SECONDS", 0.01)
    made = Log(task, "ann/web/3", heard)
    made.start()
    return made


def test_lines_that_come_in_pieces_are_whole(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task((b"one\ntw", b"o\nthr", "ee ü\n".encode(), b"no end"))
    log = log_of(task, heard, monkeypatch)
    heard.until(lambda: len(log.lines) == 4)
    assert list(log.lines) == ["one", "two", "three ü", "no end"]
    assert task.paths[0] == "/v1/tasks/ann/web/3/logs"
    log.close()


def test_a_line_without_end_is_cut(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(Task((b"x" * (2 * LINE_BYTES_MAX + 5),)), heard, monkeypatch)
    heard.until(lambda: len(log.lines) == 3)
    assert [len(line) for line in log.lines] == [LINE_BYTES_MAX, LINE_BYTES_MAX, 5]
    log.close()


def test_the_next_run_of_a_program_takes_the_place_of_the_last(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(Task((b"first\n",), (), (b"second\n",)), heard, monkeypatch)
    heard.until(lambda: list(log.lines) == ["second"])  # what wrote nothing yet hides nothing
    log.close()


def test_closing_lets_go_of_a_stream_that_says_nothing(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task()
    log = log_of(task, heard, monkeypatch)
    while not task.paths:
        pass
    log.close()
    assert task.closed.wait(PATIENCE_SECONDS)


def test_what_a_program_wrote_over_itself_is_gone(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(Task((b" 10 %\r 50 %\r100 %\r\ndone\r\n",)), heard, monkeypatch)
    heard.until(lambda: len(log.lines) == 2)
    assert list(log.lines) == ["100 %", "done"]
    log.close()


def test_times_that_are_typed_are_in_the_zone_of_who_types(
    reader: Reader, master: Master, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    asked = Ask("/v1/window", (("around", "2026-01-31T12:00"),), int)
    reader.want((asked,), fixed=True)
    heard.until(lambda: bool(reader.answer.views))
    assert master.params[-1] == {"around": "2026-01-31T12:00:00+02:00"}
    monkeypatch.undo()
    time.tzset()


def test_what_is_of_the_past_is_asked_of_who_answers_that(master: Master, heard: Heard) -> None:
    standby = Master()
    made = Reader(master, SystemClock(), heard, standby)
    made.start()
    then = Ask("/v1/usage", (("at", 2),), int)
    made.want((then, ask("/v1/diff"), ask("/v1/window"), ask("/v1/usage")), fixed=True)
    heard.until(lambda: len(made.answer.views) == 4)
    made.close()
    assert (standby.asked, master.asked) == (["/v1/usage", "/v1/diff", "/v1/window"], ["/v1/usage"])
