"""The feed keeps the last summary, says since when nothing came, and comes back."""

import queue
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from borgish.client import Message, Params
from borgish.clock import SystemClock
from borgish.dashboard import feed as feeds
from borgish.dashboard.app import Still, banner_of
from borgish.dashboard.feed import Feed, News
from borgish.errors import BorgishError, Gone, Unauthenticated, Unreachable
from borgish.wire.api import SummaryView
from tests.unit.dashboard import summaries

END = object()


class ScriptedClient:
    """Answers each watch with what the test says: messages, an error, or the end."""

    def __init__(self) -> None:
        self.script: queue.Queue[object] = queue.Queue()
        self.last_ids: list[str] = []

    def watch(self, params: Params | None = None, last_id: str = "") -> Iterator[Message]:
        assert params == {"kinds": "summary"}
        self.last_ids.append(last_id)
        while (step := self.script.get(timeout=120)) is not END:
            if isinstance(step, BorgishError):
                raise step
            assert isinstance(step, Message)
            yield step


def summary(message_id: str, position: int) -> Message:
    view = SummaryView(summaries.status(position=position), (), (), (), ())
    return Message(message_id, "summary", msgspec.json.encode(view))


def eventually(holds: Callable[[], bool]) -> None:
    clock, pause = SystemClock(), threading.Event()
    end = clock.now().mono + 60
    while not holds():
        assert clock.now().mono < end, "it did not come to that"
        pause.wait(0.005)


@pytest.fixture
def client() -> ScriptedClient:
    return ScriptedClient()


@pytest.fixture
def feed(client: ScriptedClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    monkeypatch.setattr(feeds, "AGAIN_SECONDS_MIN", 0.01)
    monkeypatch.setattr(feeds, "AGAIN_SECONDS_MAX", 0.02)
    made = Feed(client, SystemClock(), summaries.empty())
    made.start()
    yield made
    made.close()
    client.script.put(END)


def test_the_latest_summary_is_at_hand(client: ScriptedClient, feed: Feed) -> None:
    assert feed.news.view.status.position == 4217
    client.script.put(summary("3.1", 5000))
    client.script.put(Message("3.2", "event", b"{}"))  # not asked for, not minded
    client.script.put(summary("3.3", 5001))
    eventually(lambda: feed.news.view.status.position == 5001)
    assert feed.news.lost_at is None


def test_a_broken_watch_keeps_the_view_and_resumes(client: ScriptedClient, feed: Feed) -> None:
    client.script.put(summary("3.1", 5000))
    client.script.put(Unreachable("the wire was cut"))
    eventually(lambda: feed.news.error is not None)
    first_lost_at = feed.news.lost_at
    assert feed.news.view.status.position == 5000
    client.script.put(Unreachable("connection refused"))
    eventually(lambda: str(feed.news.error) == "connection refused")
    assert feed.news.lost_at == first_lost_at
    client.script.put(summary("3.2", 5002))
    eventually(lambda: feed.news.view.status.position == 5002)
    assert feed.news.lost_at is None
    assert client.last_ids == ["", "3.1", "3.1"]


def test_after_gone_it_begins_anew(client: ScriptedClient, feed: Feed) -> None:
    client.script.put(summary("3.1", 5000))
    client.script.put(Unreachable("the master was killed"))
    client.script.put(Gone("what came after 3.1 is not kept"))
    client.script.put(summary("4.0", 6000))
    eventually(lambda: feed.news.view.status.position == 6000)
    assert client.last_ids == ["", "3.1", ""]


def test_that_nothing_can_be_resumed_is_nobodys_business(
    client: ScriptedClient, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read anew at once, however long the pause would be by now, and nothing is said of it."""
    client.script.put(summary("3.1", 5000))
    eventually(lambda: feed.news.view.status.position == 5000)
    monkeypatch.setattr(feed, "_again_seconds", 3600.0)
    client.script.put(Gone("what came after 3.1 is not kept", "Watch without an id"))
    eventually(lambda: client.last_ids == ["", ""])
    assert feed.news.error is None
    client.script.put(summary("4.0", 6000))
    eventually(lambda: feed.news.view.status.position == 6000)


def test_a_master_that_lets_nobody_begin_is_not_asked_without_a_pause(
    client: ScriptedClient, feed: Feed
) -> None:
    client.script.put(Gone("this watcher was too slow", "Watch without an id"))
    eventually(lambda: feed.news.error is not None)
    assert str(feed.news.error) == "the master ended the watch"


def test_the_end_of_a_watch_is_a_loss_too(client: ScriptedClient, feed: Feed) -> None:
    client.script.put(END)
    eventually(lambda: str(feed.news.error) == "the master ended the watch")


def test_what_is_not_understood_is_said_and_asked_for_again(client: ScriptedClient, feed: Feed) -> None:
    client.script.put(Message("3.1", "summary", b'{"status": 1}'))
    eventually(lambda: "cannot be decoded" in str(feed.news.error))
    client.script.put(summary("3.2", 7000))
    eventually(lambda: feed.news.view.status.position == 7000)


@pytest.mark.parametrize(
    ("lost_at", "error", "paused", "banner"),
    [
        (None, None, False, ""),
        (100.0, Unreachable("refused", "Is it up?"), False, "not reachable since 12 s: refused. Is it up?"),
        (100.0, Unauthenticated("wrong token"), False, "no news since 12 s: wrong token"),
        (None, None, True, "paused: p goes on"),
        (100.0, Unreachable("refused"), True, "paused: p goes on | not reachable since 12 s: refused"),
    ],
)
def test_the_banner(lost_at: float | None, error: BorgishError | None, paused: bool, banner: str) -> None:
    news = News(summaries.empty(), 90.0, lost_at, error)
    assert banner_of(news, 112.2, paused=paused, heard_at=108.0) == banner


@pytest.mark.parametrize(
    ("heard_at", "asking_since", "banner"),
    [
        (112.0, None, ""),
        (108.0, 110.0, ""),
        (112.0, 105.2, "no answer for 7 s"),
        (105.2, 111.0, "no answer for 7 s"),
        (105.2, None, "no answer for 7 s"),
    ],
)
def test_a_master_that_hangs_is_said_to(heard_at: float, asking_since: float | None, banner: str) -> None:
    news = News(summaries.empty(), 90.0)
    assert banner_of(news, 112.2, paused=False, heard_at=heard_at, asking_since=asking_since) == banner


def test_of_a_master_that_froze_the_count_goes_on_when_the_watch_ends() -> None:
    lost = News(summaries.empty(), 60.0, 110.0, Unreachable("it did not answer in time"))
    said = banner_of(lost, 112.2, paused=False, heard_at=80.0)
    assert said == "not reachable since 32 s: it did not answer in time"


def test_what_stands_still_is_what_was_shown_of_the_same_thing() -> None:
    log = Still[tuple[str, ...]](())
    assert log.of(("a",), "web/0", still=False) == ("a",)
    assert log.of(("a", "b"), "web/0", still=True) == ("a",)
    assert log.of(("c",), "web/1", still=True) == ("c",)
    assert log.of(("c", "d"), "web/1", still=False) == ("c", "d")
