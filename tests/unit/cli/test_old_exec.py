"""task exec where a borgmaster or a borglet is too old that has no exec/stream."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from borgish.cli.commands.task_exec import exec_task
from borgish.client import Client, Params
from borgish.errors import BorgishError, NotFound
from borgish.wire.api_commands import ExecCall
from borgish.wire.link import ExecReply

PATH = "/v1/tasks/ann/web/0/exec"
OLD_MASTER = f"there is nothing at {PATH}/stream"
OLD_BORGLET = "a borglet has no POST /v1/exec/stream"
CALL = ExecCall(("ls",), 300.0)


def ignore(_: Iterable[bytes]) -> None:
    pass


class OldClient(Client):
    """Answers each stream with 404."""

    def __init__(self, said: str) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.said = said
        self.asked: list[tuple[str, float]] = []

    def stream(
        self, path: str, params: Params | None = None, body: object = None, opened: object = None
    ) -> Iterator[bytes]:
        raise NotFound(self.said)

    def post(self, path: str, body: object, answer: type[Any], *_: object, **__: object) -> Any:
        assert body == CALL
        self.asked.append((path, self.timeout_seconds))
        return ExecReply(b"a\nb\n", 7, cut=True)


@pytest.mark.parametrize("said", [OLD_MASTER, OLD_BORGLET])
def test_a_command_without_input_is_run_all_the_same(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    client, shown = OldClient(said), bytearray()

    def show(pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            shown.extend(piece)

    assert exec_task(client, PATH, CALL, -1, show) == 7
    assert shown == b"a\nb\n"
    assert client.asked == [(PATH, 310.0)]
    assert "longer than 1 MiB and was truncated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (OLD_MASTER, "The borgmaster is too old"),
        (OLD_BORGLET, "The borglet of its machine is too old"),
    ],
)
def test_with_input_it_is_named_what_to_upgrade(said: str, expected: str) -> None:
    client = OldClient(said)
    with pytest.raises(BorgishError, match=expected):
        exec_task(client, PATH, CALL, 0, ignore)
    assert client.asked == []


def test_a_task_that_is_not_there_is_none() -> None:
    with pytest.raises(NotFound, match="there is no task"):
        exec_task(OldClient("there is no task ann/web/0"), PATH, CALL, -1, ignore)
