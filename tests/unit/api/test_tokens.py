"""Whom a token stands for: of the cell, of its machines, and while nobody can tell."""

import pytest

from borgish.api.auth import CellTokens
from borgish.cell.access.model import Principal, Role, Token
from borgish.cell.model import Cell
from borgish.clock import SystemClock
from borgish.credentials import MEMBER, poll_token
from borgish.errors import Unreachable
from borgish.join_token import digest_of
from tests.unit.api.cells import small_cell

SECRET = "s" * 64


@pytest.fixture
def cell() -> Cell:
    cell = small_cell()
    cell.access.tokens[digest_of("bgt_a")] = Token(digest_of("bgt_a"), "ann", Role.USER)
    return cell


def tokens_of(cell: Cell | None, secret: str = SECRET) -> CellTokens:
    return CellTokens(lambda: cell, secret, SystemClock())


def test_tokens_of_the_cell_and_when_they_were_used(cell: Cell) -> None:
    tokens = tokens_of(cell)
    assert tokens.principal("bgt_a") == Principal("ann", "user", token=digest_of("bgt_a"))
    assert tokens.principal("bgt_b") is None
    assert tokens.principal("") is None
    assert tokens.take_used().keys() == {digest_of("bgt_a")}
    assert tokens.take_used() == {}


def test_before_the_cell_is_known_nobody_is_told_that_a_token_is_wrong() -> None:
    with pytest.raises(Unreachable, match="does not know the cell yet"):
        tokens_of(None).principal("bgt_a")


def test_a_machine_proves_itself_by_its_own_token(cell: Cell) -> None:
    tokens = tokens_of(cell)
    proof = poll_token(SECRET, "m1")
    assert tokens.principal(f"{MEMBER}m1.{proof}") == Principal("m1", Role.JOIN, machine="m1")
    for wrong in (
        f"m2.{proof}",
        f"m1.{proof}x",
        "m1.",
        "m1",
        f".{proof}",
        f"nowhere.{poll_token(SECRET, 'x')}",
    ):
        assert tokens.principal(MEMBER + wrong) is None, wrong
    assert tokens.principal(proof) is None, "the token alone does not say whose it is"
    assert tokens_of(cell, "t" * 64).principal(f"{MEMBER}m1.{proof}") is None, "of another cell"


def test_a_machine_that_was_invited_anew_has_another_token(cell: Cell) -> None:
    tokens, old = tokens_of(cell), f"{MEMBER}m1.{poll_token(SECRET, 'm1')}"
    cell.machines["m1"].admission = 7
    assert tokens.principal(old) is None
    new = f"{MEMBER}m1.{poll_token(SECRET, 'm1', 7)}"
    assert tokens.principal(new) is not None
