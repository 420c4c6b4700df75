"""What a token is asked to be: nothing that is left empty by mistake makes it stronger."""

import msgspec
import pytest

from borgish.wire.api import Accepted, Page
from borgish.wire.api_access import TokenList, TokenRequest, TokenView, UserList
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster

CREATE = ("token", "create", "--user", "ann")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--for", "0s"), "'never' has no end"),
        (("--for", "0d"), "'never' has no end"),
        (("--for", ""), "--for"),
        (("--bands", ""), "names no band"),
        (("--bands", " , "), "names no band"),
        (("--to", "/nonexistent/t"), "/nonexistent is no folder"),
        (("--role", "root"), "is none of reader"),
    ],
)
def test_a_mistake_makes_no_token(
    master: FakeMaster, run: Run, options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*CREATE, *options) == 2
    assert words in capsys.readouterr().err
    assert master.calls == []


@pytest.mark.parametrize(
    ("options", "seconds", "bands"),
    [
        ((), None, ()),
        (("--for", "never"), 0.0, ()),
        (("--for", "2h", "--bands", "batch, free"), 7200.0, ("batch", "free")),
    ],
)
def test_what_the_master_is_asked_for(
    master: FakeMaster, run: Run, options: tuple[str, ...], seconds: float | None, bands: tuple[str, ...]
) -> None:
    master.answers["POST /v1/tokens"] = Accepted(1, "abc", "token abc stands for ann as user")
    assert run(*CREATE, *options) == 0
    (asked,) = (it for it in master.asked if it.path == "/v1/tokens")
    found = msgspec.json.decode(asked.body, type=TokenRequest)
    assert (found.for_seconds, found.bands) == (seconds, bands)


@pytest.mark.parametrize(
    ("ends", "words"),
    [("", "never"), ("2020-01-31T12:00:00Z", "(over)"), ("2999-01-31T12:00:00Z", "2999-01-31 ")],
)
def test_the_list_says_which_are_over(
    master: FakeMaster, run: Run, ends: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = TokenView("abc", "ann", "user", (), "2019-12-31T12:00:00Z", "root", ends, "", "")
    master.answers["GET /v1/tokens"] = TokenList((made,), Page())
    assert run("token", "list") == 0
    out = capsys.readouterr().out
    assert words in out
    assert ("(over)" in out) == (words == "(over)")


def test_a_cell_without_users_says_that_other_tokens_need_none(
    master: FakeMaster, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    master.answers["GET /v1/users"] = UserList((), Page())
    assert run("user", "list") == 0
    said = "no users, whom only tokens of the role user need; `borgctl user add NAME` adds one\n"
    assert capsys.readouterr() == ("", said)
