"""borglet.toml: the example works, and every mistake names the file and the key."""

import shutil
import socket
from pathlib import Path

import pytest

from borgish.borglet import facts
from borgish.borglet.main import main
from borgish.borglet.runtimes.leftovers import Retention
from borgish.borglet.settings import ENGINE_MAY_LACK, load
from borgish.borglet.state_folder import FolderLock, membership_in
from borgish.errors import UnsafeConfiguration
from borgish.resources import Resources
from borgish.vocabulary import Runtime
from borgish.wire.bounds import mistakes_in_facts
from tests.unit.borglet.test_borglet_agent import MadeUp

EXAMPLE = Path(__file__).parents[3] / "configs" / "borglet.toml"
MINIMAL = 'machine = "m1"\nmaster = "http://127.0.0.1:7400"\njoin_token_file = "t"\nstate = "s"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "borglet.toml"
    path.write_text(text, "utf-8")
    return path


def test_the_example_is_right_and_so_is_what_it_shows_in_comments(tmp_path: Path) -> None:
    assert load(EXAMPLE).attributes == {"rack": "r1"}
    for name in ("m1.pem", "m1.key", "ca.pem"):
        (tmp_path / name).touch()
    lines = EXAMPLE.read_text("utf-8").splitlines()
    shown = [line.removeprefix("# ") if " = " in line or "# [" in line else line for line in lines]
    settings = load(write(tmp_path, "\n".join(shown)))
    assert settings.runtimes == (Runtime.PROCESS, Runtime.DOCKER)
    assert settings.capacity == Resources(4000, 8 * 2**30, 100 * 2**30, {"licences": 2}, {"gpu": 4000})
    assert settings.keep == Retention()
    assert (settings.task_disk, settings.mounts) == ((0, 0.1), ("/srv/data",))
    assert settings.without == ENGINE_MAY_LACK
    assert settings.tls is not None
    assert settings.tls.ca == str(tmp_path / "ca.pem")


def test_what_stays_of_ended_tasks_is_set(tmp_path: Path) -> None:
    text = '[keep]\nage = "2h"\nlast = 1\nlast_age = "3d"\nfolders = 7\nroom = "5%"\ncontainers = 0\n'
    assert load(write(tmp_path, MINIMAL + text)).keep == Retention(7200.0, 1, 3 * 86400.0, 7, 0, 0.05, 0)
    assert load(write(tmp_path, MINIMAL + '[keep]\nroom = "2GiB"')).keep == Retention(room_bytes=2 * 2**30)
    assert load(write(tmp_path, MINIMAL)).keep == Retention()


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = load(write(tmp_path, MINIMAL))
    assert (settings.state, settings.join_token_file) == (tmp_path / "s", tmp_path / "t")
    assert (settings.host, settings.port, settings.runtimes) == ("127.0.0.1", 0, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "machine: is missing"),
        ("machine = ", "is not TOML"),
        (MINIMAL + "colour = 1", "colour: there is no such key"),
        (MINIMAL + "[tls]\nkee = 1", "tls.kee: there is no such key"),
        (MINIMAL + "listen = 7", "listen: must be a text in quotes, and is a whole number"),
        (MINIMAL.replace('"m1"', '"M 1"'), "machine = 'M 1' is not a valid name"),
        (MINIMAL.replace('"s"', '""'), "state = '' must be the path of a folder"),
        (MINIMAL.replace("http://127.0.0.1", "127.0.0.1"), "master = '127.0.0.1:7400'"),
        (MINIMAL.replace("127.0.0.1", "10.0.0.1"), "without TLS"),
        (MINIMAL + 'listen = "here"', "listen = 'here' is not an address"),
        (MINIMAL + 'listen = "127.0.0.1:99999"', "listen = "),
        (MINIMAL + 'listen = "0.0.0.0:7401"', "can be reached from other machines"),
        (MINIMAL + 'ports = "20999-20000"', "ports = '20999-20000'"),
        (MINIMAL + 'ports = "80-90"', "ports = '80-90' is outside 1024-65535"),
        (MINIMAL + 'runtimes = ["podman"]', "runtimes = ('podman',) must name some of: process, docker"),
        (MINIMAL + "runtimes = []", "runtimes"),
        (MINIMAL + '[capacity]\nram = "lots"', "capacity.ram = 'lots' is not a number"),
        (MINIMAL + "[capacity]\ngpu = 1.5", "capacity.gpu"),
        (MINIMAL + "[devices]\ngpu = 1.5", "devices"),
        (MINIMAL + "[devices]\ngpu = 65", "devices.gpu = 65 is outside 0 to 64 devices"),
        (MINIMAL + "[devices]\nGPU = 1", "devices.GPU = 1 is not a valid name"),
        (MINIMAL + "[attributes]\nrack = 1", "attributes"),
        (MINIMAL + '[keep]\nage = "soon"', "keep.age = 'soon' is not a number"),
        (MINIMAL + '[keep]\nroom = "95%"', "keep.room = '95%' is not a share"),
        (MINIMAL + '[keep]\nroom = "1KiB"', "keep.room = '1KiB' is outside 1MiB"),
        (MINIMAL + "[keep]\nlast = -1", "keep.last: must be at least 0, and is -1"),
        (MINIMAL + "[keep]\nlogs = 1", "keep.logs: there is no such key"),
        (MINIMAL + 'task_disk = "all"', "task_disk = 'all' is not a number"),
        (MINIMAL + '[docker]\nmounts = ["data"]', "docker.mounts = ('data',) has 'data': write an absolute"),
        (MINIMAL + '[docker]\nmounts = ["/srv/"]', "write an absolute path in its shortest way"),
        (MINIMAL + '[docker]\nmounts = ["/"]', "has '/', which no container gets"),
        (MINIMAL + '[docker]\nmounts = ["/var"]', "has '/var', which no container gets"),
        (MINIMAL + '[docker]\nmounts = ["/etc/ssl"]', "has '/etc/ssl', which no container gets"),
        (MINIMAL + '[docker]\nwithout = ["limits"]', "has 'limits', and only knows seccomp, network"),
        (MINIMAL + "[docker]\nprivileged = true", "docker.privileged: there is no such key"),
        (MINIMAL + '[tls]\ncertificate = "c"\nkey = "k"', "tls.certificate: there is no file"),
    ],
)
def test_mistakes_name_the_file_and_the_key(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UnsafeConfiguration) as caught:
        load(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert said in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsafeConfiguration, match="cannot be read: No such file"):
        load(tmp_path / "borglet.toml")


def test_the_daemon_ends_with_74_on_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--config", str(write(tmp_path, MINIMAL + 'listen = "0.0.0.0:0"'))])
    assert caught.value.code == 74


def test_a_port_that_is_taken_ends_with_74(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        path = write(tmp_path, MINIMAL + f'listen = "{address}"')
        with pytest.raises(SystemExit) as caught:
            main(["--config", str(path)])
    assert caught.value.code == 74


def test_a_state_folder_that_cannot_be_made_ends_with_74(tmp_path: Path) -> None:
    (tmp_path / "s").touch()
    with pytest.raises(SystemExit) as caught:
        main(["--config", str(write(tmp_path, MINIMAL))])
    assert caught.value.code == 74


def test_facts_are_measured_and_overridden(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    extra = '[capacity]\ncpu = "1500m"\ngpu = 2\n[devices]\ntpu = 3\n[attributes]\nrack = "r1"\nos = "mine"'
    found = facts.measure(load(write(tmp_path, MINIMAL + extra)))
    assert (found.capacity.cpu_millis, found.capacity.named) == (1500, {"gpu": 2})
    assert found.capacity.devices == {"tpu": 3000}
    assert found.capacity.ram_bytes > 0
    assert found.capacity.disk_bytes > 0
    assert (found.attributes["rack"], found.attributes["os"]) == ("r1", "mine")
    assert found.attributes["arch"]
    assert facts.boot_id()


def test_a_task_that_asks_for_no_disk_gets_a_share_of_it(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    total = shutil.disk_usage(tmp_path).total
    assert facts.task_disk_bytes(load(write(tmp_path, MINIMAL))) == pytest.approx(total / 10)
    assert facts.task_disk_bytes(load(write(tmp_path, MINIMAL + 'task_disk = "2GiB"'))) == 2 * 2**30


def test_what_an_engine_says_is_told_as_one_line(tmp_path: Path) -> None:
    class Runtimes(MadeUp):
        def measures(self) -> dict[str, str]:
            return {"docker network": "no\nbridge" + "!" * 1000, "disk": "held"}

    (tmp_path / "s").mkdir()
    measured = facts.measure(load(write(tmp_path, MINIMAL)))
    found = facts.with_runtimes(measured, {Runtime.DOCKER: Runtimes()})
    assert found.confinement["disk"] == "held"
    assert found.confinement["docker network"].startswith("no bridge!!")
    assert mistakes_in_facts(found) == ()


def test_membership_is_kept_and_admits_only_its_token(tmp_path: Path) -> None:
    fresh = membership_in(tmp_path)
    assert not fresh.admits("")
    fresh.keep("local", "bgt_x")
    again = membership_in(tmp_path)
    assert (again.cell, again.poll_token) == ("local", "bgt_x")
    assert again.admits("bgt_x")
    assert not again.admits("bgt_y")
    assert not again.admits("bgt_é")
    (tmp_path / "membership.json").write_bytes(b"{to")
    assert membership_in(tmp_path).cell == ""


def test_a_lock_is_let_go_of(tmp_path: Path) -> None:
    FolderLock(tmp_path).release()
    FolderLock(tmp_path).release()
