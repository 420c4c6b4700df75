"""Constraints: how they are written, and which machines they hold for."""

import pytest

from borgish.spec.constraints import OPERATORS, matches, parse_constraint
from borgish.spec.job import Constraint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("arch == amd64", Constraint("arch", "==", ("amd64",))),
        ("arch==amd64", Constraint("arch", "==", ("amd64",))),
        ("x != y", Constraint("x", "!=", ("y",))),
        ("mem < 5", Constraint("mem", "<", ("5",))),
        ("mem <= 5", Constraint("mem", "<=", ("5",))),
        ("mem>-5.5", Constraint("mem", ">", ("-5.5",))),
        ("mem >= 5", Constraint("mem", ">=", ("5",))),
        ("rack in (r1, r2)", Constraint("rack", "in", ("r1", "r2"))),
        ("rack in(r1)", Constraint("rack", "in", ("r1",))),
        ("rack not  in ( a )", Constraint("rack", "not in", ("a",))),
        ("present(gpu)", Constraint("gpu", "present")),
        ("not present( gpu )", Constraint("gpu", "not present")),
        ("kernel == 6.1.0-18-amd64", Constraint("kernel", "==", ("6.1.0-18-amd64",))),
        ("not in (a)", None),
        ("example.com/zone == z/1", Constraint("example.com/zone", "==", ("z/1",))),
    ],
)
def test_expressions(text: str, expected: Constraint | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="is not a condition"):
            parse_constraint(text)
    else:
        assert parse_constraint(text) == expected
        assert parse_constraint(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a condition"),
        ("arch", "not a condition"),
        ("arch = amd64", "'=='"),
        ("mem < five", "not a number"),
        ("mem < 1e999", "not a number"),
        ("mem < nan", "not a number"),
        ("rack in (r1", "without a ')'"),
        ("rack in ()", "in its list"),
        ("rack in (a,,b)", "in its list"),
        ("rack in (a b)", "in its list"),
        ("arch == a b", "not a condition"),
        ("a == b == c", "not a condition"),
        ("a" * 2000, "longer than"),
    ],
)
def test_what_is_no_expression(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace(")", r"\)")):
        parse_constraint(text)


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("a == x", "x", True),
        ("a == x", "y", False),
        ("a == x", None, False),
        ("a != x", "x", False),
        ("a != x", "y", True),
        ("a != x", None, True),
        ("a < 5", "4.5", True),
        ("a < 5", "5", False),
        ("a <= 5", "5.0", True),
        ("a > 5", "10", True),
        ("a > 5", "9e9", False),
        ("a >= 5", "five", False),
        ("a >= 5", None, False),
        ("a in (x, y)", "y", True),
        ("a in (x, y)", "z", False),
        ("a in (x, y)", None, False),
        ("a not in (x, y)", "y", False),
        ("a not in (x, y)", "z", True),
        ("a not in (x, y)", None, True),
        ("present(a)", "", True),
        ("present(a)", None, False),
        ("not present(a)", "", False),
        ("not present(a)", None, True),
    ],
)
def test_matches(text: str, value: str | None, *, holds: bool) -> None:
    attributes = {} if value is None else {"a": value}
    assert matches(parse_constraint(text), attributes) is holds


def test_every_operator_is_read() -> None:
    for op in OPERATORS:
        values = () if "present" in op else ("1",)
        assert parse_constraint(str(Constraint("a", op, values))) == Constraint("a", op, values)
