"""Lets machines into the cells of tests."""

import http.client
from pathlib import Path

import msgspec

from borgish.credentials import post_token
from borgish.ids import new_token
from borgish.join_token import digest_of
from borgish.wire.api_access import InvitationRequest

SECONDS_MAX = 60.0


def invite(folder: Path, machine: str, token_file: Path) -> None:
    """Put an invitation into the letter box of a cell's folder, and into the file of its machine. Its master
    takes it over at its start, or at SIGHUP."""
    token = new_token()
    post_token(folder, token, machine, "join", machine)
    token_file.parent.mkdir(parents=True, exist_ok=True)
    token_file.write_text(token + "\n")


def invite_many(master: str, admin_token: str) -> str:
    """Return the secret of an invitation for thousands of machines, of the master at HOST:PORT."""
    secret = new_token()
    connection = http.client.HTTPConnection(master, timeout=SECONDS_MAX)
    body = msgspec.json.encode(InvitationRequest(digest_of(secret), uses=10_000, for_seconds=24 * 3600))
    headers = {"Authorization": f"Bearer {admin_token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/invitations", body, headers)
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"not invited: {answer.status} {said!r}")
    return secret
