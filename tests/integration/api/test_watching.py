"""The watch through the real server and client: order, resume, gone, and an end in time."""

import contextlib
import socket
from collections.abc import Iterator
from itertools import islice

import msgspec
import pytest

from borgish.api import serve
from borgish.api.routes import watch
from borgish.client import Client, Message
from borgish.errors import Gone, Unreachable
from borgish.wire.api import EventView, SummaryView, TaskView
from tests.integration.api.fakes import PATIENCE_SECONDS, RunningApi, until


def publish(api: RunningApi, *positions: int, job: str = "ann/web") -> None:
    events = [EventView(position, "t", "placed", f"event {position}", job) for position in positions]
    api.do(lambda: api.master.hub.publish_events(events))


def take(stream: Iterator[Message], count: int) -> list[Message]:
    return list(islice(stream, count))


def positions(messages: list[Message]) -> list[int]:
    return [msgspec.json.decode(message.data, type=EventView).position for message in messages]


def test_events_come_in_order_and_resume_after_the_last(api: RunningApi, admin: Client) -> None:
    stream = admin.watch({"kinds": "event"})
    publish(api, 1, 2, 3)
    first = take(stream, 1)
    resumed = admin.watch({"kinds": "event"}, last_id=first[0].id)
    assert (positions(first), positions(take(resumed, 2))) == ([1], [2, 3])


def test_a_watch_of_one_job_hears_of_no_other(api: RunningApi, admin: Client) -> None:
    stream = admin.watch({"kinds": "event", "job": "ann/web"})
    publish(api, 1, job="bob/db")
    publish(api, 2)
    assert positions(take(stream, 1)) == [2]


def test_changed_tasks_are_told_whole(api: RunningApi, admin: Client) -> None:
    stream = admin.watch({"kinds": "tasks", "job": "ann/web"})
    api.do(lambda: api.master.hub.tasks_changed({"bob/db": [0], "ann/web": [1, 0]}))
    (message,) = take(stream, 1)
    tasks = msgspec.json.decode(message.data, type=list[TaskView])
    assert (message.kind, [task.name for task in tasks]) == ("tasks", ["ann/web/0", "ann/web/1"])


def test_a_watcher_of_the_summary_gets_one_at_once(admin: Client) -> None:
    (message,) = take(admin.watch({"kinds": "summary"}), 1)
    assert msgspec.json.decode(message.data, type=SummaryView).status.cell == "test"


@pytest.mark.parametrize("last_id", ["2.0", "3.50", "nonsense", "3.", "3.-1", "3." + "9" * 40, "3.\u0663"])
def test_an_id_that_is_not_kept_is_gone(admin: Client, last_id: str) -> None:
    with pytest.raises(Gone) as caught:
        admin.watch({"kinds": "event"}, last_id=last_id.encode("utf-8").decode("latin-1"))
    assert "Read everything anew" in caught.value.hint


def test_an_id_that_has_left_the_log_is_gone(api: RunningApi, admin: Client) -> None:
    stream = admin.watch({"kinds": "event"})
    publish(api, 1)
    (first,) = take(stream, 1)
    publish(api, *range(2, 200))
    with pytest.raises(Gone):
        admin.watch({"kinds": "event"}, last_id=first.id)


def test_one_that_never_reads_is_let_go_with_what_waits_for_it(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "STALLED_SECONDS_MAX", 0.3)
    request = b"GET /v1/watch HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer bgt_admin\r\n\r\n"
    with socket.create_connection(("127.0.0.1", api.serving.port)) as silent:
        silent.sendall(request)
        until(lambda: api.master.hub.watchers == 1)
        text, published = "x" * 100_000, 0

        def is_let_go() -> bool:
            nonlocal published
            published += 1  # buffers of the kernel hold megabytes
            event = EventView(published, "t", "placed", text, "ann/web")
            api.do(lambda: api.master.hub.publish_events([event]))
            return api.master.hub.watchers == 0

        until(is_let_go)
        silent.settimeout(PATIENCE_SECONDS)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := silent.recv(2**20):
                received += len(piece)
        assert received < published * len(text)


def test_a_reader_that_goes_away_is_let_go(api: RunningApi, admin: Client) -> None:
    stream = admin.watch({"kinds": "event"})
    publish(api, 1)
    take(stream, 1)
    assert api.master.hub.watchers == 1
    del stream
    until(lambda: api.master.hub.watchers == 0)


def test_a_follower_of_logs_that_goes_away_is_let_go(api: RunningApi, admin: Client) -> None:
    stream = admin.stream("/v1/tasks/ann/web/0/logs", {"follow": True})
    assert next(stream).startswith(b"one\n")
    assert api.master.logs_open == 1
    del stream
    until(lambda: api.master.logs_open == 0)


def test_stopping_with_50_open_streams_ends_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """By themselves: none has to be cut off when its time to end is over."""
    monkeypatch.setattr(serve, "STOP_SECONDS", 2 * PATIENCE_SECONDS)
    api = RunningApi()
    streams = [api.client().watch({"kinds": "event"}) for _ in range(50)]
    until(lambda: api.master.hub.watchers == 50)
    api.stop()
    assert [list(stream) for stream in streams] == [[]] * 50, "they end in order, without an error"


def test_stopping_cuts_off_what_does_not_end_by_itself() -> None:
    api = RunningApi()
    stream = api.client().stream("/v1/tasks/ann/web/0/logs", {"follow": True})
    next(stream)
    assert serve.STOP_SECONDS + serve._CUT_SECONDS < 1
    api.stop()
    with pytest.raises(Unreachable):
        list(stream)
    assert api.master.logs_open == 0
