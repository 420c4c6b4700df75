"""How a job file says what becomes of tasks that end: each field in its canonical form, each mistake told."""

import pytest

from borgish.errors import Invalid
from borgish.spec.file.read import read_job
from borgish.spec.file.write import write_job
from borgish.spec.job import ExitCodes, ExitRule
from borgish.spec.shares import Share
from borgish.vocabulary import OnExit

ONCE = "name: sweep\nrun: [sweep]\nrestart: {policy: on_failure}\n"
RULES = """
max_failures: 10%
on_exit:
  - {codes: [42, 64-78], do: fail}
  - {codes: [3], signals: [SIGUSR1, KILL], do: finish}
  - {signals: [SEGV], do: restart}
"""


def test_rules_in_their_order() -> None:
    spec = read_job(ONCE + RULES, "ann")
    assert spec.on_exit == (
        ExitRule(OnExit.FAIL, (ExitCodes(42, 42), ExitCodes(64, 78))),
        ExitRule(OnExit.FINISH, (ExitCodes(3, 3),), ("USR1", "KILL")),
        ExitRule(OnExit.RESTART, (), ("SEGV",)),
    )
    assert read_job(write_job(spec), "nobody") == spec
    assert "- 42\n" in write_job(spec) or "[42, 64-78]" in write_job(spec)


@pytest.mark.parametrize(
    ("text", "share", "of_fifty"),
    [("0", Share(0), 0), ("3", Share(3), 3), ("10%", Share(0, 10), 5), ("0%", Share(0), 0)],
)
def test_how_many_may_fail(text: str, share: Share, of_fifty: int) -> None:
    spec = read_job(f"{ONCE}max_failures: {text}", "ann")
    assert spec.max_failures == share
    assert share.of(50) == of_fifty
    assert read_job(write_job(spec), "nobody") == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("on_exit: [{codes: [0], do: fail}]", "exit code 0 is success"),
        ("on_exit: [{codes: [256], do: fail}]", "'256' is outside 1 to 255"),
        ("on_exit: [{codes: [9-3], do: fail}]", "'9-3' ends before it begins"),
        ("on_exit: [{codes: [x], do: fail}]", "'x' is not an exit code"),
        ("on_exit: [{codes: [], do: fail}]", "the list is empty"),
        ("on_exit: [{codes: [3, 3], do: fail}]", "'3' is given twice"),
        ("on_exit: [{do: fail}]", "the rule says of no end what follows"),
        ("on_exit: [{codes: [3]}]", "do is missing"),
        ("on_exit: [{codes: [3], do: fial}]", "'fial' is not one of fail, finish, restart"),
        ("on_exit: [{signals: [WINCH], do: fail}]", "'WINCH' is not one of the signals"),
        ("max_failures: -1", "'-1' is neither a number of tasks nor a percentage"),
        ("max_failures: 101%", "'101%' is outside 0% to 100%"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(ONCE + text, "ann")
    (mistake,) = caught.value.mistakes
    assert message in mistake.message
    assert mistake.line == 4


@pytest.mark.parametrize("field", ["max_failures: 3", "on_exit: [{codes: [3], do: fail}]"])
def test_a_service_has_none_of_it(field: str) -> None:
    with pytest.raises(Invalid, match="is for a job that runs to completion, and this one is a service"):
        read_job(f"name: web\nrun: [serve]\n{field}", "ann")


def test_what_is_wrong_with_restart_does_not_hide_what_it_is() -> None:
    with pytest.raises(Invalid) as caught:
        read_job("name: web\nrun: [serve]\nrestart: {policy: onfailure}\nmax_failures: 3", "ann")
    assert [mistake.line for mistake in caught.value.mistakes] == [3]
