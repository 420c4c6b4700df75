from pathlib import Path

import pytest

from borgish.api.auth import ALLOWED, Policy, Role, Tokens, bearer, check, token_digest
from borgish.api.middleware import hosts_of
from borgish.api.services import Principal
from borgish.errors import Forbidden, Unauthenticated, UnsafeConfiguration


def written(path: Path, text: str) -> Path:
    file = path / "tokens.toml"
    file.write_text(text)
    return file


def test_tokens_are_found_by_their_digest(tmp_path: Path) -> None:
    text = f'[{token_digest("bgt_a")}]\nname = "ann"\nrole = "user"\n'
    text += f'[{token_digest("bgt_b").upper()}]\nname = "root"\nrole = "admin"\n'
    tokens = Tokens.read(written(tmp_path, text))
    assert tokens.principal("bgt_a") == Principal("ann", "user")
    assert tokens.principal("bgt_b") == Principal("root", "admin")
    assert tokens.principal("bgt_c") is None
    assert tokens.principal(token_digest("bgt_a")) is None, "the digest is no token"


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "[abc]\nname = 'x'\nrole = 'user'",
        f"[{'0' * 64}]\nname = 'x'\nrole = 'king'",
        f"[{'0' * 64}]\nname = 'x'",
    ],
)
def test_tokens_that_cannot_be_understood_end_the_daemon(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnsafeConfiguration, match=r"tokens\.toml"):
        Tokens.read(written(tmp_path, text))


def test_tokens_that_are_not_there_end_the_daemon(tmp_path: Path) -> None:
    with pytest.raises(UnsafeConfiguration):
        Tokens.read(tmp_path / "tokens.toml")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Basic abc")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")],
    ],
)
def test_a_request_without_one_token_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unauthenticated):
        bearer(headers)


def allowed(policy: Policy, role: Role, *, own: bool) -> bool:
    try:
        check(policy, Principal("ann", role), "ann" if own else "bob")
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("policy", list(Policy))
def test_roles_reach_as_far_as_declared(policy: Policy, role: Role, own: bool) -> None:
    expected = role in ALLOWED[policy] and (own or policy is not Policy.OWN or role is not Role.USER)
    assert allowed(policy, role, own=own) == expected


def test_what_each_role_may_do() -> None:
    may = {role: {p for p in Policy if allowed(p, role, own=True)} for role in Role}
    assert may == {
        Role.ADMIN: set(Policy),
        Role.USER: {Policy.READ, Policy.SUBMIT, Policy.OWN},
        Role.READER: {Policy.READ},
        Role.JOIN: {Policy.JOIN},
    }


def test_hosts_are_limited_on_loopback_only() -> None:
    assert "127.0.0.2" in (hosts_of("127.0.0.2") or ())
    assert hosts_of("10.0.0.1") is None
