"""Where a Docker engine is looked for, and that a borglet without one is spared the docker SDK."""

import subprocess
import sys
from pathlib import Path

import pytest

from borgish.borglet.runtimes.docker.socket import SOCKET, expect_socket, socket_path
from borgish.errors import Unreachable

LOOK = """
import sys
from pathlib import Path
import borgish.borglet.main as main
from borgish.borglet.runtimes.secrets import NO_SECRETS
from borgish.borglet.settings import load
from borgish.errors import Unreachable
from borgish.vocabulary import Runtime
try:
    main._factories(load(Path(sys.argv[1])), NO_SECRETS)[Runtime.DOCKER]("local")
except Unreachable as error:
    print(error.message)
sys.exit(bool({"docker", "requests"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("host", "path"),
    [("", SOCKET), ("unix:///run/d.sock", "/run/d.sock"), ("http+unix://run/d.sock", "/run/d.sock")],
)
def test_the_socket_is_that_of_the_environment(host: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    assert socket_path() == path


def test_an_engine_over_a_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://host:2375")
    with pytest.raises(Unreachable, match="no socket of this machine"):
        expect_socket()


def test_a_socket_that_is_there_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.sock").touch()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    expect_socket()


def test_where_no_socket_is_the_sdk_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    config = tmp_path / "borglet.toml"
    config.write_text('machine = "m"\nmaster = "http://127.0.0.1:1"\njoin_token_file = "t"\nstate = "."\n')
    command = [sys.executable, "-c", LOOK, str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout == f"no Docker engine answers (there is no {tmp_path}/none.sock)\n", ended.stderr
    assert ended.returncode == 0, "the docker SDK was imported"
