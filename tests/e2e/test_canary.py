"""Secrets planted as canaries on a running cell, and looked for wherever they must not be (S44)."""

import base64
import contextlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

from borgish.borglet.runtimes.secrets import memory_folder
from borgish.client import Client
from borgish.errors import Forbidden, Unauthenticated
from borgish.join_token import digest_of, parse
from tests.cells import RealCell, wait_until

READS = 'test "$TOKEN" = "$(cat $BORGISH_SECRETS/key)" || exit 9; echo begun; exec sleep 100000'


def job(user: str = "") -> str:
    return json.dumps(
        {
            "name": "keeper",
            "run": ["sh", "-c", READS],
            "secret_env": {"TOKEN": "canary"},
            "secret_files": {"key": "canary"},
            "resources": {"cpu": "10m", "ram": "16MiB"},
        }
        | ({"user": user} if user else {})
    )


def files_with(folder: Path, canaries: list[bytes]) -> list[str]:
    """Return the files beneath a folder that hold one of these."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and any(canary in path.read_bytes() for canary in canaries)
    ]


def shown_by(cell: RealCell, job_key: str) -> Iterator[str]:
    """Yield what people can have a cell tell about a job and its secrets."""
    for name in ("jobs", "tasks", "machines", "secrets", "events", "history", "audit", "status", "crons"):
        yield cell.client().raw("GET", f"/v1/{name}").decode()
    for words in (("job", "show", job_key, "-o", "json"), ("job", "show", job_key, "-o", "yaml")):
        yield cell.ok(*words)
    yield cell.ok("why", f"{job_key}/0")
    yield cell.ok("task", "show", f"{job_key}/0")


def processes() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_text(errors="replace")


def test_canaries_are_nowhere_but_in_memory(own: RealCell, tmp_path: Path) -> None:
    first, second = (secrets.token_hex(24) for _ in range(2))
    plain = [first, second]
    canaries = [*plain, *(base64.b64encode(each.encode()).decode() for each in plain)]
    own.ok("secret", "set", "canary", stdin=first)
    own.ok("job", "submit", "-", stdin=job())
    (row,) = own.items("job", "list")
    key = f"{row['user']}/keeper"
    wait_until(lambda: "begun" in own.ok("task", "logs", f"{key}/0"))
    own.ok("checkpoint", "create", "--name", "before")
    assert "job restart" in own.borgctl("secret", "set", "canary", stdin=second).err
    own.ok("job", "restart", key)
    wait_until(lambda: own.items("task", "list", key)[0]["phase"] == "up")

    shown = [*shown_by(own, key), *processes(), own.logs()]
    assert not [text for text in shown for canary in canaries if canary in text]
    (tmp_path / "exported").mkdir()
    own.ok("checkpoint", "export", "before", tmp_path / "exported" / "cell", "--with-journal")
    assert files_with(own.folder, [canary.encode() for canary in canaries]) == []
    assert files_with(tmp_path / "exported", [canary.encode() for canary in canaries]) == []

    own.ok("job", "kill", "--yes", key)
    own.ok("rollback", "--yes", "before")
    wait_until(lambda: own.items("task", "list", key)[0]["phase"] == "up")
    states = [path for path in own.folder.rglob("process") if path.is_dir()]
    (memory,) = [found for path in states if (found := memory_folder(path.parent)) and found.exists()]
    wait_until(lambda: files_with(memory, [second.encode()]))
    assert files_with(memory, [first.encode()]) == [], "a rotated secret stays rotated through a rollback"


def test_tokens_and_invitations_are_nowhere_but_where_they_were_given(own: RealCell, tmp_path: Path) -> None:
    own.ok("user", "add", "ann")
    own.ok("token", "create", "--user", "ann", "--to", tmp_path / "ann.token")
    of_ann = (tmp_path / "ann.token").read_text().strip()
    (invitation,) = (word for word in own.ok("machine", "invite", "m9").split() if word.startswith("BG1"))
    wrong = f"bgt_{secrets.token_urlsafe(32)}"
    for token in (of_ann, wrong, parse(invitation).secret):
        with contextlib.suppress(Forbidden, Unauthenticated):
            Client(own.client().url, token).raw("GET", "/v1/status")
    own.ok("token", "revoke", digest_of(of_ann)[:12])
    own.ok("checkpoint", "create", "--name", "before")
    admin = (own.folder / "tokens" / "admin.token").read_text().strip()
    canaries = [of_ann, wrong, parse(invitation).secret, admin]
    assert not [text for text in (*processes(), own.logs()) for canary in canaries if canary in text]
    assert files_with(own.folder, [canary.encode() for canary in canaries]) == [
        str(own.folder / "tokens" / "admin.token")
    ]
