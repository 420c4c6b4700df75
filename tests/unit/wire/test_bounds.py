"""What machines may say of themselves: what is beyond it would end in columns, paths and terminals."""

import json
from typing import Any

import msgspec
import pytest

from borgish.addresses import is_loopback
from borgish.resources import Resources
from borgish.vocabulary import Runtime
from borgish.wire.bounds import AMOUNT_MAX, mistakes_in_facts, mistakes_in_join
from borgish.wire.link import Facts, JoinRequest, PollReply

FACTS = Facts(
    Resources(1000, 2**30, 2**40, {"gpu": 2}, {"gpu": 64_000}),
    {"arch": "amd64"},
    (Runtime.PROCESS,),
    20000,
    20999,
)
JOIN = JoinRequest("m1", "127.0.0.1", 7401, "boot", "run", FACTS)

WRONG_JOINS: list[tuple[str, Any]] = [
    *[("machine", name) for name in ("", "../x", "M1", "a/b", "m1\n", "\x1b[2J", "a" * 64, "-a")],
    *[
        ("host", host)
        for host in ("", " ", "a b", "a@b", "127.0.0.1/x?", "a\r\nX: y", "127.0.0.1\0", "a" * 254)
    ],
    *[("host", host) for host in ("evil.example", "10.0.0.1", "0.0.0.0", "::", "127.0.0.1.evil.example")],
    *[("port", port) for port in (0, -1, 65536, 10**30)],
    *[(key, text) for key in ("boot_id", "instance") for text in ("", "\0", "a\n", "x" * 129)],
]
WRONG_FACTS: list[tuple[str, Any]] = [
    ("capacity.cpu_millis", Resources(-1)),
    ("capacity.ram_bytes", Resources(1, 10**30)),
    ("capacity.disk_bytes", Resources(1, 1, AMOUNT_MAX + 1)),
    ("capacity.named", Resources(named={"../x": 1})),
    ("capacity.named", Resources(named={"gpu": -1})),
    ("capacity.named", Resources(named={f"n{i}": 1 for i in range(65)})),
    ("capacity.devices", Resources(devices={"../x": 1000})),
    ("capacity.devices", Resources(devices={"gpu": -1000})),
    ("capacity.devices", Resources(devices={"gpu": 1500})),
    ("capacity.devices", Resources(devices={"gpu": 65_000})),
    ("capacity.devices", Resources(devices={f"n{i}": 1000 for i in range(65)})),
    ("images", {"": "amd64"}),
    ("images", {"x" * 513: "amd64"}),
    ("images", {"busybox:1": "x" * 64}),
    ("images", {"busybox:1\x1b": "amd64"}),
    ("images", {f"i{i}": "amd64" for i in range(513)}),
    ("attributes", {"": "x"}),
    ("attributes", {"a": "x" * 257}),
    ("attributes", {"a": "\x1b[2J"}),
    ("attributes", {"a": "\0"}),
    ("attributes", {f"a{i}": "x" for i in range(129)}),
]


def test_what_borglets_say_is_right() -> None:
    assert mistakes_in_join(JOIN) == ()
    for host in ("localhost", "::1", "127.8.8.8"):
        assert mistakes_in_join(msgspec.structs.replace(JOIN, host=host)) == ()


def test_other_hosts_are_polled_with_tls_only() -> None:
    far = msgspec.structs.replace(JOIN, host="m1.example.org")
    assert [mistake.path for mistake in mistakes_in_join(far)] == ["host"]
    assert mistakes_in_join(msgspec.structs.replace(far, tls=True)) == ()


@pytest.mark.parametrize(("field", "value"), WRONG_JOINS)
def test_joins_that_are_refused(field: str, value: Any) -> None:
    mistakes = mistakes_in_join(msgspec.structs.replace(JOIN, **{field: value}))
    assert [mistake.path for mistake in mistakes] == [field]
    assert mistakes[0].message.isprintable()
    assert len(mistakes[0].message) < 200


@pytest.mark.parametrize(("path", "value"), WRONG_FACTS)
def test_facts_that_are_refused(path: str, value: Any) -> None:
    facts = msgspec.structs.replace(FACTS, **{path.partition(".")[0]: value})
    assert [mistake.path for mistake in mistakes_in_facts(facts)] == [path]
    in_join = mistakes_in_join(msgspec.structs.replace(JOIN, facts=facts))
    assert [mistake.path for mistake in in_join] == [f"facts.{path}"]


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-5, 10), (20, 10), (1, 65536), (10**30, 10**30)])
def test_ranges_of_ports_that_are_none(low: int, high: int) -> None:
    facts = msgspec.structs.replace(FACTS, ports_low=low, ports_high=high)
    assert [mistake.path for mistake in mistakes_in_facts(facts)] == ["ports_low"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1.evil.example", "127.evil.example", "0.0.0.0", "::", "", "127.1", "localhost.evil"]
)
def test_what_only_looks_like_loopback(host: str) -> None:
    assert not is_loopback(host)


ATTEMPT = {"task": "a/b/0", "attempt": 7, "phase": "up"}
COUNTS: list[tuple[str, object]] = [
    ("attempt", 10**30),
    ("attempt", -1),
    ("pid", 2**31),
    ("restarts", 2**31),
    ("ports", {"http": 70000}),
    ("port_in_use", -1),
    ("last_exit", {"code": 2**31}),
    ("last_exit", {"signal": 10**30}),
]


@pytest.mark.parametrize(("field", "value"), COUNTS)
def test_counts_that_no_column_holds_are_not_read(field: str, value: object) -> None:
    facts = msgspec.to_builtins(FACTS)
    reply = {"machine": "m1", "boot_id": "b", "instance": "i", "generation": 0, "report_generation": 1}
    right = reply | {"report": {"facts": facts, "attempts": [ATTEMPT]}}
    assert msgspec.json.decode(msgspec.json.encode(right), type=PollReply).report
    wrong = reply | {"report": {"facts": facts, "attempts": [ATTEMPT | {field: value}]}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(wrong), type=PollReply)
