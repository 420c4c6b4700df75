"""What the host's administrators put into the folder of a cell."""

from pathlib import Path

import pytest

from borgish.cell.access.model import Role
from borgish.credentials import (
    LETTER_BOX,
    admin_token_digest,
    admin_token_ends,
    post_token,
    replace_admin_token,
)
from borgish.errors import UnsafeConfiguration
from borgish.join_token import digest_of
from borgish.master.host.letter_box import INVITATION_SECONDS, TAKEN, letters_to_lead, put_away, read_letters

HERE, ELSEWHERE = "127.0.0.1", "0.0.0.0"
DAY = 86400.0


def test_tokens_and_invitations_are_told_apart(tmp_path: Path) -> None:
    assert not read_letters(tmp_path, HERE, 100.0)
    post_token(tmp_path, "bgt_a", "ann", "user")
    post_token(tmp_path, "secret", "m1", "join", "m1")
    post_token(tmp_path, "old", "join", "join")
    letters = read_letters(tmp_path, HERE, 100.0)
    assert [(it.sha256, it.user, it.role) for it in letters.tokens] == [
        (digest_of("bgt_a"), "ann", Role.USER),
        (digest_of("old"), "join", Role.JOIN),
    ]
    ((invitation),) = letters.invitations
    assert (invitation.sha256, invitation.machine, invitation.uses) == (digest_of("secret"), "m1", 1)
    assert invitation.expires_at == 100.0 + INVITATION_SECONDS
    assert (tmp_path / LETTER_BOX).stat().st_mode & 0o777 == 0o600
    put_away(tmp_path)
    assert not read_letters(tmp_path, HERE, 100.0)
    assert (tmp_path / TAKEN).exists()


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "[abc]\nname = 'x'\nrole = 'user'",
        f"[{'0' * 64}]\nname = 'x'\nrole = 'king'",
        f"[{'0' * 64}]\nname = 'x'",
        f"[{'0' * 64}]\nname = 'x'\nrole = 'user'\nother = 1",
    ],
)
def test_what_cannot_be_understood_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / LETTER_BOX).write_text(text)
    with pytest.raises(UnsafeConfiguration, match=r"tokens\.toml"):
        read_letters(tmp_path, HERE, 0.0)


def test_another_admin_token_is_posted_as_it_is_made(tmp_path: Path) -> None:
    first = admin_token_digest(tmp_path)
    assert admin_token_digest(tmp_path) == first
    path = replace_admin_token(tmp_path)
    ((token),) = read_letters(tmp_path, HERE, 0.0).tokens
    assert (token.sha256, token.role) == (digest_of(path.read_text().strip()), Role.ADMIN)
    assert token.sha256 == admin_token_digest(tmp_path) != first


def test_the_first_admin_token_ends_a_day_after_it_was_made_where_others_may_show_it(tmp_path: Path) -> None:
    digest = admin_token_digest(tmp_path)
    made = (tmp_path / "tokens" / "admin.token").stat().st_mtime
    assert [(it.sha256, it.expires_at) for it in letters_to_lead(tmp_path, HERE, [], made).tokens] == [
        (digest, 0.0)
    ]
    for started in (made, made + DAY / 2):
        ((token),) = letters_to_lead(tmp_path, ELSEWHERE, [], started).tokens
        assert (token.sha256, token.expires_at) == (digest, made + DAY), "whenever the master starts"


def test_an_admin_token_that_is_over_is_not_let_in_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    admin_token_digest(tmp_path)
    ends = admin_token_ends(tmp_path, ELSEWHERE)
    assert letters_to_lead(tmp_path, ELSEWHERE, [], ends - 1)
    assert not letters_to_lead(tmp_path, ELSEWHERE, [], ends)
    assert "`borgctl cell recover` makes another" in caplog.text


def test_a_recovered_admin_token_ends_as_the_first_one_does(tmp_path: Path) -> None:
    replace_admin_token(tmp_path)
    post_token(tmp_path, "bgt_a", "ann", "user")
    ends = admin_token_ends(tmp_path, ELSEWHERE)
    for read in (read_letters(tmp_path, ELSEWHERE, 0.0), letters_to_lead(tmp_path, ELSEWHERE, [], 0.0)):
        assert [token.expires_at for token in read.tokens] == [ends, 0.0]
    assert {token.expires_at for token in read_letters(tmp_path, HERE, 0.0).tokens} == {0.0}
