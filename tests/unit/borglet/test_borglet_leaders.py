"""Whom a borglet obeys: the leader of the highest term, one for each; and what it tells of that one."""

import msgspec
import pytest

from borgish.borglet.core import BorgletCore
from borgish.errors import Conflict
from borgish.wire.link import UNKNOWN, Assignment, HeadReply, Leader, PollRequest
from tests.unit.borglet.test_borglet_core import FACTS, T0, Bench, make_spec

FIRST, SECOND = Leader("http://a:7400", "nonce-a"), Leader("http://b:7400", "nonce-b")


def test_it_says_whom_it_has_heard_and_what_it_knows() -> None:
    core = BorgletCore("m1", "boot", "i1", FACTS, now=T0)
    assert core.seen(T0, connected=True) == HeadReply("m1", 0, 0, 0, polls=0)
    bench = Bench(make_spec(), make_spec(attempt=12))
    assert bench.core.seen(T0, connected=True) == HeadReply("m1", 1, 1, 12, polls=0)
    bench.core.hear(2, 5, FIRST)
    assert bench.core.seen(T0, connected=True) == HeadReply("m1", 2, 5, 12, FIRST, polls=0)


def test_a_second_leader_of_one_term_is_refused() -> None:
    bench = Bench(make_spec())
    bench.core.poll(PollRequest("c", 2, 5, 1, leader=FIRST), bench.now)
    with pytest.raises(Conflict, match=r"epoch 5 of the borgmaster at http://a:7400; .* is another's"):
        bench.core.poll(PollRequest("c", 2, 5, 1, leader=SECOND), bench.now)
    assert bench.core.seen(bench.now, connected=True).polls == 1
    bench.core.poll(PollRequest("c", 2, 5, 1, leader=FIRST), bench.now)
    assert bench.core.seen(bench.now, connected=True).polls == 2
    bench.core.poll(PollRequest("c", 2, 6, 1, leader=SECOND), bench.now)
    assert bench.core.head.leader == SECOND
    with pytest.raises(Conflict, match=r"epoch 6 of the borgmaster at http://b:7400; .* was superseded"):
        bench.core.poll(PollRequest("c", 2, 5, 1, leader=FIRST), bench.now)


def test_the_leader_of_a_term_is_known_after_a_restart() -> None:
    bench = Bench(make_spec())
    bench.core.poll(PollRequest("c", 2, 5, 1, leader=FIRST, assignment=Assignment(1)), bench.now)
    head = bench.core.step(bench.now).head
    again = BorgletCore("m1", "boot", "i2", FACTS, head=head, now=T0)
    with pytest.raises(Conflict, match="is another's"):
        again.hear(2, 5, SECOND)


def test_who_does_not_say_who_leads_is_obeyed_as_before() -> None:
    bench = Bench()
    bench.core.hear(2, 5)
    bench.core.hear(2, 5, FIRST)  # a borglet from before kept no nonce
    bench.core.hear(2, 5)
    assert bench.core.head.leader == FIRST


def test_words_of_the_release_before_are_understood() -> None:
    asked = b'{"cell":"c","timeline":1,"epoch":2,"generation":3}'
    assert msgspec.json.decode(asked, type=PollRequest).leader == UNKNOWN
    head = msgspec.json.decode(b'{"machine":"m1","timeline":1,"epoch":2,"attempt":3}', type=HeadReply)
    assert (head.leader, head.polls, head.polled) == (UNKNOWN, None, False)


def test_it_tells_whether_its_master_lives_and_is_late() -> None:
    bench = Bench()
    bench.core.poll(PollRequest("c", 1, 1, 1, wait_seconds=3.0), bench.now)
    for seconds, connected, overdue in ((0.0, True, 0.0), (0.0, False, 0.0), (4.5, True, 1.5)):
        head = bench.core.seen(bench.now.later(seconds), connected=connected)
        assert head.polled is connected
        assert head.overdue_seconds == pytest.approx(overdue)
    endless = PollRequest("c", 1, 1, 1, wait_seconds=1e9)  # held for a minute, whatever it asks for
    bench.core.poll(endless, bench.now)
    assert bench.core.seen(bench.now.later(62.0), connected=True).overdue_seconds == pytest.approx(2.0)
