"""A machine's file says no more how it was known before, and nothing else in it changes."""

from pathlib import Path

import pytest

from borgish.borglet.joining.invited import carry_over
from borgish.borglet.settings import read
from borgish.configuration import without_table
from borgish.errors import UnsafeConfiguration

HEAD = 'machine = "m1" # ours\nmaster = "{0}"\nstate = "state"\n'
URL = "https://127.0.0.1:7400"
TLS = '# about TLS\n[tls] # an operator\ncertificate = "a"\nkey = "b"\nca = "c"\n\n# the rest\n'
DOCKER = '[docker]\nmounts = ["/srv"]\n'


@pytest.mark.parametrize(
    "master", [URL, "http://127.0.0.1:7400", "https://10.0.0.9:7400,http://127.0.0.1:7400"]
)
@pytest.mark.parametrize("tls", ["", TLS])
def test_tls_goes_and_the_master_is_called_by_https(tmp_path: Path, master: str, tls: str) -> None:
    path = tmp_path / "borglet.toml"
    text = HEAD.format(master) + tls + DOCKER
    path.write_text(text)
    carry_over(path, read(path), (URL,))
    after = read(path)
    assert (after.tls, after.master, after.docker.mounts) == (
        None,
        master.replace("http://127", "https://127"),
        ("/srv",),
    )
    assert "# ours" in path.read_text()
    kept = path.with_name("borglet.toml.before")
    assert kept.exists() == (after.master != master or bool(tls))
    if kept.exists():
        assert kept.read_text() == text


@pytest.mark.parametrize(
    "text",
    ['tls.ca = "x"\n', 'tls = {ca = "x"}\n', 'a = """\n[tls]\n"""\n[tls]\nca = "x"\n', '["tls"]\nca = "x"\n'],
)
def test_what_cannot_be_taken_out_by_lines_is_left_to_people(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(UnsafeConfiguration, match="is not by itself there"):
        without_table(path, "tls")
    assert path.read_text() == text
