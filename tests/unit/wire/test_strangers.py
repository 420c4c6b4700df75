"""Who has shown no token yet: how many of one address, and of all, and who goes when there are too many."""

import asyncio
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl

from borgish.wire import bounded_http
from borgish.wire.bounded_http import (
    HEAD_SECONDS_MAX,
    HURRIED_SECONDS_MAX,
    BoundedHttp,
    Loss,
    UnauthenticatedConnections,
)


class Stranger(BoundedHttp):
    """A connection without a socket."""

    def __init__(self, strangers: UnauthenticatedConnections, source: str = "192.0.2.1") -> None:
        self.there = True
        self._strangers, self._source = strangers, source
        self.seconds = strangers.add(self, source)

    def abort(self) -> None:
        self.leave()
        self.there = False


class Transport(asyncio.Transport):
    """Notes what a connection does to it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")

    def is_closing(self) -> bool:
        return "close" in self.done


class Sender(Stranger):
    """A connection that notes what it reads."""

    def __init__(self, strangers: UnauthenticatedConnections, source: str, said: list[bytes]) -> None:
        super().__init__(strangers, source)
        self.transport = self.sent = Transport()
        self.flow = FlowControl(self.sent)
        self._loss, self._said = Loss(), said

    def read(self, data: bytes) -> None:
        self._said.append(data)


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> UnauthenticatedConnections:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (80, 80))
    monkeypatch.setattr(bounded_http, "_HURRIED", 3)
    return UnauthenticatedConnections(2)


def test_more_than_a_few_of_an_address_have_less_time(strangers: UnauthenticatedConnections) -> None:
    seconds = [Stranger(strangers).seconds for _ in range(4)]
    assert seconds == [HEAD_SECONDS_MAX] * 2 + [HURRIED_SECONDS_MAX] * 2
    assert Stranger(strangers, "192.0.2.2").seconds == HEAD_SECONDS_MAX


def test_who_is_known_or_gone_counts_no_more(strangers: UnauthenticatedConnections) -> None:
    for _ in range(9):
        one = Stranger(strangers)
        assert one.seconds == HEAD_SECONDS_MAX
        one.leave()
        one.leave()


def test_when_an_address_has_very_many_the_oldest_goes(strangers: UnauthenticatedConnections) -> None:
    other = Stranger(strangers, "192.0.2.2")
    all_of_one = [Stranger(strangers) for _ in range(9)]
    assert [one.there for one in all_of_one] == [False] * 3 + [True] * 6
    assert other.there


def test_all_addresses_have_a_quarter_of_the_descriptors(strangers: UnauthenticatedConnections) -> None:
    everybody = [Stranger(strangers, f"192.0.2.{n}") for n in range(25)]
    assert [one.there for one in everybody] == [False] * 5 + [True] * 20


def test_one_address_takes_half_of_what_all_have(strangers: UnauthenticatedConnections) -> None:
    strangers.of_address = 1000
    assert sum(one.there for one in [Stranger(strangers) for _ in range(50)]) == 10


def test_known_and_unknown_leave_descriptors_to_the_rest(strangers: UnauthenticatedConnections) -> None:
    assert strangers.has_room(39)
    assert not strangers.has_room(40)


def test_a_crowd_is_accepted_at_once_as_far_as_nobody_is_closed_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, 65536))
    strangers, crowd = UnauthenticatedConnections(), list[Stranger]()
    while (at_once := strangers.accepted_at_once) > bounded_http._TAKEN_AT_ONCE:
        crowd += [Stranger(strangers) for _ in range(at_once)]
    assert len(crowd) > 1500
    assert all(one.there for one in crowd)
    assert strangers.accepted_at_once == bounded_http._TAKEN_AT_ONCE
    for one in crowd:
        one.leave()
    assert strangers.accepted_at_once == bounded_http._ACCEPTED_AT_ONCE


def order(*arriving: tuple[str, int]) -> list[int]:
    """Return the order in which arrivals have their turn, each a source and a number of credentials."""
    arrivals = bounded_http._Arrivals[int]()
    for number, (source, credentials) in enumerate(arriving):
        arrivals.add(number, source, credentials)
    taken = []
    while arrivals:
        taken.append(arrivals.next())
    return taken


def test_of_connections_that_wait_sources_take_turns_and_the_newest_of_each_is_next() -> None:
    crowd, other = ("192.0.2.1", 0), ("192.0.2.2", 0)
    assert order(crowd, crowd, crowd, other) == [2, 3, 1, 0]


def test_of_one_source_other_credentials_take_turns_and_the_newest_of_each_is_next() -> None:
    ann, bob, nobody = (("192.0.2.1", credentials) for credentials in (1, 2, 0))
    assert order(ann, ann, bob, ann, nobody, ann, bob) == [4, 6, 5, 2, 3, 1, 0]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=30))
def test_each_has_one_turn_and_waits_for_one_of_each_source_and_of_each_other_credentials(
    arriving: list[tuple[str, int]],
) -> None:
    taken = order(*arriving)
    assert sorted(taken) == list(range(len(arriving)))
    sources = {source for source, _ in arriving}
    shown = {who for who in arriving if who[0] == "a"}
    for who in shown:  # its first turn comes before any other of its source has a second one
        waited = [arriving[number] for number in taken[: taken.index(_newest(arriving, who))]]
        assert len([one for one in waited if one[0] == "a"]) < len(shown)
        assert len(waited) < len(shown) * len(sources)


def _newest(arriving: list[tuple[str, int]], who: tuple[str, int]) -> int:
    return max(number for number, one in enumerate(arriving) if one == who)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"Authorization: Bearer a", b"authorization: Bearer a", True),
        (b"Authorization: Bearer a", b"X: y\r\nAUTHORIZATION: Bearer a", True),
        (b"Authorization: Bearer a", b"Authorization: Bearer b", False),
        (b"X-Authorization: Bearer a", b"Host: localhost", True),
        (b"Authorization: Bearer a", b"Host: localhost", False),
        (b"Host: localhost", b"Authorization", True),
    ],
)
def test_credentials_are_what_the_head_shows(one: bytes, other: bytes, *, same: bool) -> None:
    def number(lines: bytes) -> int:
        return bounded_http._credentials(b"GET / HTTP/1.1\r\n" + lines + b"\r\n\r\n")

    assert (number(one) == number(other)) is same


async def test_of_what_strangers_send_a_few_are_read_in_each_round_and_who_is_known_goes_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_http, "_READ_AT_ONCE", 2)
    strangers, said = UnauthenticatedConnections(), list[bytes]()
    crowd = [Sender(strangers, "192.0.2.1", said) for _ in range(6)]
    other, known = Sender(strangers, "192.0.2.2", said), Sender(strangers, "192.0.2.1", said)
    known.leave()
    for number, one in enumerate(crowd):
        one.data_received(b"%d" % number)
    other.data_received(b"other")
    known.data_received(b"known")
    assert said == [b"0", b"1", b"known"]
    assert [one.sent.done for one in (crowd[1], crowd[2], known)] == [[], ["pause"], []]
    await asyncio.sleep(0)
    assert said[3:] == [b"5", b"other"]
    assert crowd[5].sent.done == ["pause", "resume"]
    crowd[4].sent.done.append("close")
    crowd[3]._loss.happened = True
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert said[5:] == [b"2"]  # and nothing of those that are closed
    await asyncio.sleep(0)
    crowd[0].data_received(b"0 again")
    assert said[6:] == [b"0 again"]
    assert crowd[0].sent.done == []


async def test_what_is_long_is_read_at_once_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "_READ_AT_ONCE", 1)
    strangers, said = UnauthenticatedConnections(), list[bytes]()
    first, second, long = (Sender(strangers, "192.0.2.1", said) for _ in range(3))
    first.data_received(b"first")
    second.data_received(b"second")
    body = bytes(bounded_http.HEAD_BYTES_MAX + 1)
    long.data_received(body)
    assert (said, long.sent.done) == ([b"first", body], [])


async def test_who_is_held_up_by_what_reads_it_is_not_resumed_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_http, "_READ_AT_ONCE", 1)
    strangers, said = UnauthenticatedConnections(), list[bytes]()
    first, second = (Sender(strangers, "192.0.2.1", said) for _ in range(2))
    first.data_received(b"first")
    second.data_received(b"second")
    second.flow.read_paused = True  # as uvicorn has it where a body is too long for now
    await asyncio.sleep(0)
    assert (said, second.sent.done) == ([b"first", b"second"], ["pause"])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "127.9.9.9", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::2:0:0:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_addresses_that_one_host_can_have_are_one(one: str, other: str, *, same: bool) -> None:
    assert (bounded_http._source(one) == bounded_http._source(other)) is same
