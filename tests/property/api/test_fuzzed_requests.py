"""Hundreds of requests, thousands at night, made from the OpenAPI document, most of them wrong.

Whatever is asked: an answer below 500 within the time, problem details when it is a refusal, and no
word of what is inside. A connection that is refused to death is opened again.
"""

import http.client
import json
import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.api.fakes import RunningApi
from tests.profiles import examples, seeds

REQUESTS = examples(2500)
INSIDE = re.compile(rb"Traceback|site-packages|\.py\b|sqlite|SELECT |INSERT |0x[0-9a-f]{8}")
STREAMS = ("/v1/watch", "/logs")
WORDS: tuple[str, ...] = (
    *("", "ann", "web", "m1", "0", "1", "running", "event", "true", "ann/web", "ann/web/0"),
    *("-1", "1e9", "NaN", "9" * 30, "9" * 400, "0x10", "1_0", "+1", "٣", "null", "[]", "{}"),
    *("..", "../..", "..%2f", "%00", "\x00", "\x1b[2J", "a\r\nX: y", "\ud800", "ÿ", "🙂", "'; --", "{path}"),
    *("a" * 300, "a" * 5000, " ", "%", "%zz", "*", "?", "#", "&", ";"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 3, 10_001, 2**31, 2**63, 2**64, 10**30, 1.5, -0.0, 1e308, "", "a", "\0", "3"),
    *([], [0], [-1], [2**40], ["a"] * 2000, ["\x00"], [[]], {}, {"a": 1}, "x" * 70_000),
)


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[RunningApi]:
    running = RunningApi()
    yield running
    running.stop()


class Maker:
    """Makes requests from the document. The same seed makes the same."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self.random = random.Random(seed)
        self.schemas = document["components"]["schemas"]
        self.operations = [
            (path, method.upper(), operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]

    def request(self) -> tuple[str, str, bytes]:
        """Return method, target and body."""
        path, method, operation = self.random.choice(self.operations)
        if self.random.random() < 0.05:
            method = self.random.choice(("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))
        target = re.sub(r"\{[^}]*\}", lambda _: self._word(), path)
        names = [it["name"] for it in operation["parameters"] if it["in"] == "query"] + ["follow", "zzz"]
        pairs = [f"{self.random.choice(names)}={self._word()}" for _ in range(self.random.randrange(3))]
        # A stream that begins would be read until its end.
        pairs = [pair for pair in pairs if not pair.startswith(("follow", "kinds"))]
        if path.endswith(STREAMS):
            pairs.append("zzz=1")
        return method, target + ("?" + "&".join(pairs) if pairs else ""), self._body(operation)

    def _word(self) -> str:
        return quote(self.random.choice(WORDS), safe="", errors="surrogatepass")

    def _body(self, operation: dict[str, Any]) -> bytes:
        content = operation.get("requestBody", {}).get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
        fields = self.schemas.get(reference.rpartition("/")[2], {}).get("properties", {"name": {}, "run": {}})
        chosen = [name for name in [*fields, "zzz"] if self.random.random() < 0.6]
        text = json.dumps({name: self.random.choice(VALUES) for name in chosen}).encode()
        return self._broken(text) if self.random.random() < 0.2 else text

    def _broken(self, text: bytes) -> bytes:
        at = self.random.randrange(len(text) + 1)
        return (
            text[:at] + self.random.choice((b"", b"\xff", b"\0", b"[" * 3000, b"NaN", b"\n")) + text[at + 1 :]
        )


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=3))
def test_nothing_that_is_asked_makes_the_master_fail(fuzzed: RunningApi, seed: int) -> None:
    document = json.loads(fuzzed.client().raw("GET", "/v1/openapi.json"))
    maker = Maker(document, seed)
    answered: dict[int, int] = {}
    connection = http.client.HTTPConnection("127.0.0.1", fuzzed.serving.port, timeout=60)
    for number in range(REQUESTS):
        method, target, body = maker.request()
        connection.request(method, target, body, {"Authorization": "Bearer bgt_admin"})
        response = connection.getresponse()
        said = response.read()
        shown = f"{number}: {method} {target[:200]} {body[:200]!r} -> {response.status} {said[:300]!r}"
        assert response.status < 500, shown
        if response.status >= 400:
            assert response.headers["content-type"] == "application/problem+json", shown
            assert json.loads(said)["detail"], shown
            assert not INSIDE.search(said), shown
        answered[response.status // 100] = answered.get(response.status // 100, 0) + 1
    connection.close()
    assert answered[2] > REQUESTS / 20, "too few requests got through to the handlers"
    assert answered[4] > REQUESTS / 2
