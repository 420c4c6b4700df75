"""What is wrong with the types and keys of ``cell.toml`` is said in its own words."""

from pathlib import Path

import pytest

from borgish.errors import UnsafeConfiguration
from borgish.master.host.settings import read_settings

NAME = 'name = "local"\n'


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            NAME + "[lease]\nttl_seconds = '6'",
            "lease.ttl_seconds: must be a number, and is a text in quotes",
            "Write it without quotes. ",
        ),
        (
            NAME + "[lease]\nttl_secs = 6",
            "lease.ttl_secs: there is no such key",
            "Did you mean lease.ttl_seconds? ",
        ),
        (
            NAME + "[checkpoints.keep]\nhourley = 6",
            "checkpoints.keep.hourley: there is no such key",
            "Did you mean checkpoints.keep.hourly? ",
        ),
        (NAME + "lissen = '127.0.0.1:1'", "lissen: there is no such key", "Did you mean listen? "),
        (
            NAME + "[lease]\nmasters = ['http://127.0.0.1:1']",
            "lease.masters: there is no such key",
            "Did you mean masters, above the first [table]? ",
        ),
        (NAME + "hold_seconds = 1", "hold_seconds: there is no such key", "Did you mean poll.hold_seconds? "),
        (NAME + "zzz = 1", "zzz: there is no such key", ""),
        (NAME + "masters = 'x'", "masters: must be a list in [ ], and is a text in quotes", ""),
        (NAME + "masters = [1]", "masters: must be a text in quotes, and is a whole number", ""),
        (NAME + "tls = 3", "tls: must be a table, and is a whole number", ""),
        (NAME + "[tls]\nkey = 'k'", "tls.certificate: is missing", ""),
        (
            NAME + "[bands.names]\nprod = 'x'",
            "bands.names: 'x' is not one of the allowed words",
            "",
        ),
        (
            NAME + "[checkpoints.keep]\nnamed = 1.5",
            "checkpoints.keep.named: must be a whole number or a text in quotes, and is a number",
            "",
        ),
        ("", "name: is missing", ""),
    ],
)
def test_a_mistake_is_named_by_file_and_key(tmp_path: Path, text: str, message: str, hint: str) -> None:
    path = tmp_path / "cell.toml"
    path.write_text(text)
    with pytest.raises(UnsafeConfiguration) as caught:
        read_settings(path)
    assert caught.value.message == f"{path}: {message}"
    assert caught.value.hint == f"{hint}configs/cell.toml shows every key"
    assert caught.value.exit_code == 74
