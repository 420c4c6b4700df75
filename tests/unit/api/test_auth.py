import pytest

from borgish.api.auth import ALLOWED, Policy, bearer, check
from borgish.api.middleware import hosts_of
from borgish.cell.access.model import Principal, Role
from borgish.errors import Forbidden, Unauthenticated


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


WHOSE = {"own": "ann", "of a group": "web-team", "of others": "bob"}


def allowed(policy: Policy, role: Role, *, whose: str) -> bool:
    try:
        check(policy, Principal("ann", role, frozenset({"web-team"})), WHOSE[whose])
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize("whose", WHOSE)
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("policy", list(Policy))
def test_roles_reach_as_far_as_declared(policy: Policy, role: Role, whose: str) -> None:
    theirs = whose != "of others" or policy is not Policy.OWN or role is not Role.USER
    assert allowed(policy, role, whose=whose) == (role in ALLOWED[policy] and theirs)


def test_what_each_role_may_do() -> None:
    shut = set(Policy) - {Policy.OPEN}  # to which each role may come, and nobody has to have one
    assert all(allowed(Policy.OPEN, role, whose="own") for role in Role)
    may = {role: {p for p in shut if allowed(p, role, whose="own")} for role in Role}
    assert may == {
        Role.ADMIN: shut - {Policy.JOIN},
        Role.OPERATOR: {Policy.READ, Policy.SELF, Policy.OPERATE},
        Role.USER: {Policy.READ, Policy.SELF, Policy.SUBMIT, Policy.OWN},
        Role.READER: {Policy.READ, Policy.SELF},
        Role.JOIN: {Policy.JOIN},
    }


def test_hosts_are_limited_on_loopback_only() -> None:
    assert "127.0.0.2" in (hosts_of("127.0.0.2") or ())
    assert hosts_of("10.0.0.1") is None
