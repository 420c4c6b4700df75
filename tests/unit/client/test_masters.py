"""Whom a client asks, of several masters: the leader is found, and that nobody leads is said."""

from collections.abc import Callable

import pytest

from borgish import masters
from borgish.addresses import may_follow, several
from borgish.errors import Unreachable
from borgish.masters import Masters, NobodyLeads, NotAnswering, Redirected

A, B, C = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(masters, "LEADERLESS_SECONDS_MAX", 60.0)


def asking(urls: str, answers: dict[str, Callable[[], str]]) -> tuple[str, str, int]:
    """Ask, and return the answer, where it came from, and how often connections were let go of."""
    asked, let_go = Masters(urls), list[None]()
    answer = asked.ask(lambda: answers[asked.url](), lambda: let_go.append(None))
    return answer, asked.url, len(let_go)


def fails(error: Exception) -> Callable[[], str]:
    def answer() -> str:
        raise error

    return answer


def test_the_first_that_leads_is_asked_and_no_other() -> None:
    assert asking(f"{A},{B}", {A: lambda: "yes"}) == ("yes", A, 0)


def test_one_that_is_not_there_is_passed_over() -> None:
    assert asking(f"{A}, {B}/", {A: fails(NotAnswering("gone")), B: lambda: "yes"}) == ("yes", B, 1)


def test_a_standby_sends_on_also_to_one_that_is_not_in_the_list() -> None:
    assert asking(A, {A: fails(Redirected(A, f"{C}/v1/jobs?x=1")), C: lambda: "yes"}) == ("yes", C, 1)


def test_it_is_asked_again_until_somebody_leads() -> None:
    answers = iter([NobodyLeads("not yet"), Redirected(A, B), None])

    def of_standby() -> str:
        if error := next(answers):
            raise error
        return "yes"

    assert asking(A, {A: of_standby, B: fails(NotAnswering("dead"))})[:2] == ("yes", A)


def test_nobody_leads_is_said_with_what_each_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "LEADERLESS_SECONDS_MAX", 0.05)
    answers = {A: fails(NotAnswering(f"{A} cannot be reached")), B: fails(NobodyLeads(f"{B} stands by"))}
    with pytest.raises(Unreachable, match="no borgmaster of this cell leads: ") as caught:
        asking(f"{A},{B}", answers)
    assert f"{A} cannot be reached" in caught.value.message
    assert f"{B} stands by" in caught.value.message


def test_where_nobody_answers_nobody_is_waited_for() -> None:
    with pytest.raises(NotAnswering, match="gone"):
        asking(A, {A: fails(NotAnswering("gone"))})
    with pytest.raises(Unreachable, match="one; two"):
        asking(f"{A},{B}", {A: fails(NotAnswering("one")), B: fails(NotAnswering("two"))})


def test_what_the_leader_refuses_is_nobody_elses_to_answer() -> None:
    with pytest.raises(ValueError, match="no"):
        asking(f"{A},{B}", {A: fails(ValueError("no"))})


@pytest.mark.parametrize(
    ("here", "there", "may"),
    [
        ("https://a:1", "https://b:1", True),
        ("https://a:1", "http://a:1", False),
        ("http://127.0.0.1:1", "http://127.0.0.1:2", True),
        ("http://127.0.0.1:1", "http://elsewhere:2", False),
        ("http://127.0.0.1:1", "https://elsewhere:2", True),
        ("http://127.0.0.1:1", "ftp://127.0.0.1:2", False),
    ],
)
def test_a_token_is_not_carried_into_the_clear(here: str, there: str, may: bool) -> None:
    assert may_follow(here, there) is may


def test_a_list_of_addresses() -> None:
    assert several(f" {A}/ ,,{B},{A}") == (A, B)
