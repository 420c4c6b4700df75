"""Whose request is begun next, how many may wait, and who waits no more."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.api import admission
from borgish.api.admission import (
    AT_ONCE_MAX,
    AT_START,
    IN_FLIGHT_MAX,
    SHARE_SECONDS,
    SHOWN_SECONDS,
    Admission,
    Asker,
    Lane,
    Waiting,
    asker_of,
    next_share,
)
from borgish.api.middleware import App, Scope
from borgish.cell.access.model import Principal, Role
from borgish.clock import Now, SystemClock
from borgish.errors import Overloaded, TooManyRequests
from borgish.wire.bounded_http import LOSS, Loss

ANN, BOB = Asker("ann", Lane.USERS), Asker("bob", Lane.USERS)
OLGA, STRANGER = Asker("olga", Lane.FIRST), Asker("192.0.2.1", Lane.STRANGERS)
MANY = 10_000


def rest(waiting: Waiting[Any]) -> list[Any]:
    return [waiting.next() for _ in range(len(waiting))]


# Whose turn it is


def test_those_who_ask_take_turns_and_each_goes_in_order() -> None:
    waiting = Waiting[str](MANY)
    for name in ("a1", "a2", "a3"):
        waiting.add(ANN, name)
    waiting.add(BOB, "b1")
    assert rest(waiting) == ["a1", "b1", "a2", "a3"]
    assert not waiting


def test_operators_users_and_strangers_wait_beside_each_other() -> None:
    waiting = Waiting[str](MANY)
    for number in range(3):
        for asker in (STRANGER, ANN, OLGA):
            waiting.add(asker, f"{asker.name}{number}")
    assert [name[:-1] for name in rest(waiting)] == ["olga", "ann", "192.0.2.1"] * 3


ASKERS = [Asker(f"{lane.name}{number}", lane) for lane in Lane for number in range(3)]
STEPS = st.lists(st.one_of(st.sampled_from(ASKERS), st.just("next"), st.just("remove")), max_size=200)


@given(steps=STEPS)
def test_a_first_request_waits_for_one_of_each_other_and_nobody_is_lost_or_served_twice(
    steps: list[Any],
) -> None:
    waiting, added = Waiting[int](MANY), dict[int, Asker]()
    others_first = dict[int, int]()  # of who has none waiting but this: so many are before it at the most

    def take() -> None:
        request = waiting.next()
        asker = added.pop(request)
        assert all(request < number for number, each in added.items() if each == asker), "each in order"
        most = others_first.pop(request, None)
        assert most is None or most >= 0
        for number in others_first:
            others_first[number] -= 1

    for number, step in enumerate(steps):
        if step == "next":
            if waiting:
                take()
        elif step == "remove":
            if added:
                request = next(iter(added))
                assert waiting.remove(added.pop(request), request)
                others_first.pop(request, None)
        else:
            if step not in added.values():
                beside = {each for each in added.values() if each.lane == step.lane}
                others_first[number] = len(Lane) * (len(beside) + 1) - 1
            waiting.add(step, number)
            added[number] = step
        assert len(waiting) == len(added)
    while waiting:
        take()
    assert not added


# How many may wait


def test_one_who_has_too_many_is_turned_away_and_others_are_not() -> None:
    waiting, few = Waiting[int](MANY), Asker("ann", Lane.USERS, 2)
    waiting.add(few, 1)
    waiting.add(few, 2)
    with pytest.raises(TooManyRequests, match="2 requests of ann wait already") as refused:
        waiting.add(few, 3)
    assert refused.value.status == 429
    assert refused.value.retry_after_seconds > 0
    waiting.add(BOB, 4)
    assert rest(waiting) == [1, 4, 2]
    waiting.add(few, 5)


def test_all_of_a_lane_together_have_an_end_and_other_lanes_have_room() -> None:
    waiting = Waiting[int](3)
    for number in range(3):
        waiting.add(Asker(f"user{number}", Lane.USERS), number)
    with pytest.raises(Overloaded) as refused:
        waiting.add(BOB, 3)
    assert refused.value.status == 503
    waiting.add(OLGA, 4)
    assert waiting.next() == 4


def test_who_is_turned_away_leaves_nothing() -> None:
    waiting = Waiting[int](0)
    with pytest.raises(Overloaded):
        waiting.add(ANN, 1)
    assert not waiting.remove(ANN, 1)
    assert not waiting


def test_who_leaves_is_not_next_and_makes_room() -> None:
    waiting = Waiting[int](MANY)
    waiting.add(ANN, 1)
    waiting.add(ANN, 2)
    assert waiting.remove(ANN, 1)
    assert not waiting.remove(ANN, 1)
    assert not waiting.remove(BOB, 2)
    assert rest(waiting) == [2]


# How many are begun at a time


def test_a_share_follows_what_the_last_one_took() -> None:
    assert next_share(16, 16, SHARE_SECONDS) == 16
    assert next_share(16, 16, 4 * SHARE_SECONDS) == 4
    assert next_share(16, 16, SHARE_SECONDS / 100) == 32, "it grows no faster than this"
    assert next_share(AT_ONCE_MAX, AT_ONCE_MAX, 0.0) == AT_ONCE_MAX
    assert next_share(1, 1, 100 * SHARE_SECONDS) == 1


# Whose request it is


def scope(path: str = "/v1/jobs", **headers: str) -> dict[str, Any]:
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "path": path, "headers": given, "client": ("192.0.2.1", 1), "state": {}}


@pytest.mark.parametrize(
    ("principal", "path", "name", "lane"),
    [
        (Principal("ann", Role.USER), "/v1/jobs", "ann", Lane.USERS),
        (Principal("eve", Role.READER), "/v1/status", "eve", Lane.USERS),
        (Principal("eve", Role.READER), "/v1/health", "eve", Lane.FIRST),
        (Principal("olga", Role.OPERATOR), "/v1/jobs", "olga", Lane.FIRST),
        (Principal("root", Role.ADMIN), "/v1/jobs", "root", Lane.FIRST),
        (Principal("invitation", Role.JOIN), "/v1/machines", "192.0.2.1", Lane.FIRST),
        (None, "/v1/health", "192.0.2.1", Lane.STRANGERS),
    ],
)
def test_who_asks_is_the_user_or_else_the_address(
    principal: Principal | None, path: str, name: str, lane: Lane
) -> None:
    asker = asker_of(scope(path), principal)
    assert (asker.name, asker.lane) == (name, lane)


@pytest.mark.parametrize("headers", [{"content_length": "65537"}, {"transfer_encoding": "chunked"}])
def test_of_long_bodies_few_may_wait_and_they_hold_up_nothing_else(headers: dict[str, str]) -> None:
    ann = Principal("ann", Role.USER)
    assert asker_of(scope(**headers), ann).most == admission.LONG_OF_ASKER_MAX
    assert asker_of(scope(**headers), ann) != asker_of(scope(), ann)


def test_of_strangers_few_bodies_wait_at_all() -> None:
    assert asker_of(scope(content_length="1"), None).most == admission.LONG_OF_ASKER_MAX
    assert asker_of(scope(content_length="0"), None).most == admission.OF_STRANGER_MAX


# The loop


class Tokens:
    """A token is the name of a user."""

    def principal(self, token: str) -> Principal | None:
        return Principal(token, Role.USER)


class Still:
    """A clock that is set."""

    mono = 0.0

    def now(self) -> Now:
        return Now(0.0, self.mono)


def door(app: App) -> Admission:
    return Admission(app, Tokens(), SystemClock())


def of(user: str, loss: Loss | None = None) -> dict[str, Any]:
    asked = scope(authorization=f"Bearer {user}")
    asked["state"] = {LOSS: loss} if loss else {}
    return asked


def user_of(asked: Scope) -> str:
    given: bytes = dict(asked["headers"])[b"authorization"]
    return given.decode().removeprefix("Bearer ")


async def _nothing(*_: Any) -> None:
    """Nobody sends or receives."""


class Begun(list[str]):
    """An app: whose requests were begun, in order."""

    async def __call__(self, asked: Scope, _receive: object, _send: object) -> None:
        self.append(user_of(asked))


async def test_the_first_of_another_user_is_begun_before_the_rest_of_a_crowd() -> None:
    begun = Begun()
    app = door(begun)
    await asyncio.gather(*(app(of(user), _nothing, _nothing) for user in [*["ann"] * 500, "bob"]))
    assert begun.index("bob") == AT_START + 1
    assert Counter(begun) == {"ann": 500, "bob": 1}


async def test_in_one_round_of_the_loop_no_more_than_a_share_is_begun() -> None:
    begun, rounds = Begun(), list[int]()
    app = door(begun)
    crowd = [asyncio.create_task(app(of("ann"), _nothing, _nothing)) for _ in range(500)]
    while len(begun) < len(crowd):
        before = len(begun)
        await asyncio.sleep(0)
        rounds.append(len(begun) - before)
    assert max(rounds) <= AT_ONCE_MAX
    await asyncio.gather(*crowd)


async def test_what_goes_on_together_is_not_more_than_can_be_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "IN_FLIGHT_SECONDS", 3600.0)
    begun, committed = Begun(), asyncio.Event()

    async def waits(asked: Scope, _receive: object, _send: object) -> None:
        begun.append(user_of(asked))
        await committed.wait()

    app = door(waits)
    crowd = [asyncio.create_task(app(of("ann"), _nothing, _nothing)) for _ in range(500)]
    for _ in range(500):
        await asyncio.sleep(0)
    assert len(begun) == IN_FLIGHT_MAX
    other = asyncio.create_task(app(of("bob"), _nothing, _nothing))
    await asyncio.sleep(0)
    committed.set()
    await asyncio.gather(*crowd, other)
    assert begun.index("bob") <= IN_FLIGHT_MAX + 1
    assert Counter(begun) == {"ann": 500, "bob": 1}


async def test_what_was_begun_holds_no_place_however_long_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "IN_FLIGHT_SECONDS", 0.0)
    begun = 0

    async def never(_asked: Scope, _receive: object, _send: object) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    app = door(never)
    lasting = [asyncio.create_task(app(of("ann"), _nothing, _nothing)) for _ in range(500)]
    while begun < len(lasting):
        await asyncio.sleep(0)
    for task in lasting:
        task.cancel()


async def test_whoever_goes_away_is_not_begun() -> None:
    begun, early, late = Begun(), Loss(), Loss()
    app = door(begun)
    early.happened = True
    crowd = [asyncio.create_task(app(of("ann"), _nothing, _nothing)) for _ in range(AT_START)]
    gone = [asyncio.create_task(app(of("gone", loss), _nothing, _nothing)) for loss in (early, late)]
    waits = asyncio.create_task(app(of("bob"), _nothing, _nothing))
    await asyncio.sleep(0)
    assert late.call is not None
    late.call()
    await asyncio.gather(*crowd, *gone, waits)
    assert Counter(begun) == {"ann": AT_START, "bob": 1}


async def test_a_request_that_is_cancelled_is_not_begun_and_holds_up_nobody() -> None:
    begun = Begun()
    app = door(begun)
    crowd = [asyncio.create_task(app(of("ann"), _nothing, _nothing)) for _ in range(AT_START)]
    cancelled = [asyncio.create_task(app(of("gone"), _nothing, _nothing)) for _ in range(3)]
    waits = asyncio.create_task(app(of("bob"), _nothing, _nothing))
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*crowd, waits)
    assert Counter(begun) == {"ann": AT_START, "bob": 1}


async def test_what_is_too_much_is_answered_and_told_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "OF_ASKER_MAX", 4)
    clock, begun, said = Still(), Begun(), list[Any]()
    app = Admission(begun, Tokens(), clock)

    async def send(message: Any) -> None:
        said.append(message)

    users = [*["ann"] * (AT_START + 4 + 3), "bob"]
    await asyncio.gather(*(app(of(user), _nothing, send) for user in users))
    assert Counter(begun) == {"ann": AT_START + 4, "bob": 1}
    heads = [message for message in said if "status" in message]
    assert [head["status"] for head in heads] == [429] * 3
    assert all((b"retry-after", b"1") in head["headers"] for head in heads)
    clock.mono += 7
    assert app.busy() == ("4 requests of ann wait already: 3 more were turned away, the last 7 s ago",)
    clock.mono += SHOWN_SECONDS
    assert app.busy() == ()


async def test_who_shows_a_token_while_it_waits_is_no_stranger() -> None:
    known = list[str]()
    app = door(Begun())
    asked = [of("ann") for _ in range(AT_START + 1)]
    asked[-1]["state"]["borgish.on_authenticated"] = lambda: known.append("ann")
    await asyncio.gather(*(app(each, _nothing, _nothing) for each in asked))
    assert known == ["ann"]
