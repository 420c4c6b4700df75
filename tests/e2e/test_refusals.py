"""What is refused, with words and an exit code, while the cell goes on as if nothing had been asked."""

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from borgish.errors import BorgishError, Invalid, TooLarge
from borgish.wire.api import Accepted
from tests.cells import RealCell
from tests.e2e.watched import asking, end_jobs, foreground, lives, status_of, submitted
from tests.ports import free_port

WEB = "name: refused\ntasks: 3\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"
BOMB = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a, *a, *a]\n" for i in range(50)) + "name: bomb\n"
BORGMASTER, BORGLET = "borgish.master.main", "borgish.borglet.main"


@pytest.fixture(scope="module")
def running(shared: RealCell) -> Iterator[RealCell]:
    """The shared cell with a job that runs."""
    submitted(shared, WEB)
    yield shared
    end_jobs(shared)


@pytest.fixture
def unchanged(running: RealCell) -> Iterator[RealCell]:
    """The cell; behind the test nothing in it has changed: no job, no event, no program."""
    before = state_of(running)
    yield running
    assert state_of(running) == before


def state_of(made: RealCell) -> tuple[object, ...]:
    pids = [made.pid(name) for name in ("borgmaster", "m1", "m2")]
    return status_of(made).position, made.items("job", "list", "-o", "name") or (), lives(made), pids


# Job files


def with_job(line: str) -> str:
    return f"name: bad\nrun: ['true']\n{line}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(BOMB, "alias", id="bomb"),
        pytest.param("a: &a [*a]\n", "alias", id="a loop"),
        pytest.param("[" * 100_000, "deep", id="depth"),
        pytest.param("name: bad\nname: worse\nrun: ['true']\n", "'name'", id="duplicate key"),
        pytest.param(with_job("tasks: no"), "tasks", id="no for a number"),
        pytest.param(with_job("health: {tcp: no, port: http}\nports: [http]"), "tcp", id="no for false"),
        pytest.param(with_job("tasks: .nan"), "tasks", id="NaN"),
        pytest.param(with_job("resources: {cpu: .nan}"), "cpu", id="NaN cpu"),
        pytest.param(with_job("tasks: -1"), "tasks", id="negative"),
        pytest.param(with_job("tasks: " + "1" + "0" * 30), "tasks", id="1e30 tasks"),
        pytest.param(with_job("resources: {ram: " + "1" + "0" * 30 + "}"), "ram", id="1e30 bytes"),
        pytest.param(with_job("tasks: 20000"), "at most 10000 tasks", id="20,000 tasks"),
        pytest.param(with_job("colour: red"), "colour", id="unknown field"),
        pytest.param("name: ../etc\nrun: ['true']\n", "name", id="name"),
        pytest.param("name: a\nrun: !!python/object/apply:os.system ['true']\n", "tag", id="tag"),
        pytest.param("", "empty", id="empty"),
        pytest.param("\0\0", "", id="no text"),
    ],
)
def test_a_hostile_job_file_is_refused_by_the_api(unchanged: RealCell, text: str, words: str) -> None:
    """Straight to the API: what borgctl checks before is checked there, too."""
    with asking(unchanged) as client, pytest.raises(Invalid) as refused:
        client.post("/v1/jobs", text.encode(), Accepted, params={"user": "ann"})
    said = refused.value.message + "".join(m.message + m.path + m.hint for m in refused.value.mistakes)
    assert words in said
    assert refused.value.mistakes


def test_a_body_of_2_mib_is_refused_by_the_api(unchanged: RealCell) -> None:
    body = b"# " + b"x" * (2 << 20) + b"\n" + WEB.encode()
    with asking(unchanged) as client, pytest.raises(BorgishError) as refused:
        client.post("/v1/jobs", body, Accepted, params={"user": "ann"})
    assert isinstance(refused.value, TooLarge), refused.value
    assert "larger than 1048576 bytes" in str(refused.value)


def test_all_mistakes_are_said_at_once_each_with_its_line(unchanged: RealCell) -> None:
    text = "name: Bad\ntasks: -3\nrun: ['true']\ncolour: red\n"
    said = unchanged.borgctl("job", "submit", "-", stdin=text)
    assert said.code == 2
    for line in ("stdin:1:7:", "stdin:2:8:", "stdin:4:1:"):
        assert line in said.err
    assert said.err.count("^") == 3


def test_one_bad_file_keeps_the_others_out(unchanged: RealCell, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("name: good\nrun: ['true']\n")
    bad.write_text("name: bad\nrun: ['true']\ntasks: 20000\n")
    said = unchanged.borgctl("job", "submit", "--settle", 0, good, bad)
    assert said.code == 2
    assert "nothing was submitted" in said.err


# Tokens and addresses


def test_a_wrong_token_is_not_allowed(unchanged: RealCell, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.token"
    wrong.write_text("borgish-of-another-cell\n")
    said = unchanged.borgctl("--token-file", wrong, "job", "list")
    assert said.code == 4, said
    assert "error: the token is not known in this cell" in said.err
    assert "hint: " in said.err


@pytest.mark.parametrize("name", ["nowhere.token", "empty.token"])
def test_no_token_is_not_allowed(unchanged: RealCell, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.token").touch()
    said = unchanged.borgctl("--token-file", tmp_path / name, "job", "list")
    assert said.code == 4, said
    assert "error: " in said.err
    assert "token" in said.err
    assert "hint: " in said.err


def test_an_invitation_may_not_command(running: RealCell, tmp_path: Path) -> None:
    invited = running.borgctl("machine", "invite", "m9")
    (tmp_path / "token").write_text(invited.out.split("::")[1].split()[0])
    said = running.borgctl("--token-file", tmp_path / "token", "job", "kill", "--yes", "refused")
    assert said.code == 4, said
    assert "hint: " in said.err


def test_a_master_that_is_not_there_cannot_be_reached(unchanged: RealCell) -> None:
    said = unchanged.borgctl("--url", f"http://127.0.0.1:{free_port()}", "job", "list")
    assert said.code == 4, said
    assert "cannot be reached: connection refused" in said.err
    assert "hint: " in said.err


def test_a_folder_without_a_cell_cannot_be_reached(tmp_path: Path) -> None:
    said = RealCell(tmp_path / "nothing").borgctl("status")
    assert said.code == 4, said
    assert "hint: " in said.err
    assert not (tmp_path / "nothing").exists()


# The database and the daemons' files


def test_other_programs_read_the_tables_while_the_cell_runs(unchanged: RealCell) -> None:
    uri = f"file:{unchanged.folder / 'cell.db'}?mode=ro"
    query = "select state, count(*) from tasks group by state"
    status = status_of(unchanged)
    counts = {"dead": status.dead, "pending": status.pending, "running": status.running}
    counted = [(state, count) for state, count in counts.items() if count]
    if program := shutil.which("sqlite3"):
        done = subprocess.run([program, uri, query], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (
            "".join(f"{state}|{count}\n" for state, count in counted),
            "",
        )
    reader = sqlite3.connect(uri, uri=True)
    try:
        assert reader.execute(query).fetchall() == counted
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("delete from tasks")
    finally:
        reader.close()


def test_a_second_borgmaster_on_a_folder_names_the_first(unchanged: RealCell, tmp_path: Path) -> None:
    config = tmp_path / "cell.toml"
    listen = f"127.0.0.1:{free_port()}"
    client_file = (unchanged.folder / "client.json").read_bytes()
    config.write_text(f'name = "local"\nlisten = "{listen}"\nstate = "{unchanged.folder}"\n')
    with foreground(BORGMASTER, config) as second:
        assert second.ended() == 74
        assert f"process {unchanged.pid('borgmaster')} holds" in second.said()
        assert "Stop that borgmaster first" in second.said()
    # Whoever asks next must still be shown to the first.
    assert (unchanged.folder / "client.json").read_bytes() == client_file


def test_a_second_borglet_on_a_folder_names_the_first(unchanged: RealCell) -> None:
    with foreground(BORGLET, unchanged.folder / "machines/m1/borglet.toml") as second:
        assert second.ended() == 74
        assert f"in use by another borglet (pid {unchanged.pid('m1')})" in second.said()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:7400"])
@pytest.mark.parametrize("module", [BORGMASTER, BORGLET])
def test_an_address_that_others_reach_is_refused_without_tls(
    tmp_path: Path, module: str, listen: str
) -> None:
    config = configuration(tmp_path, module, f'listen = "{listen}"\n')
    with foreground(module, config) as daemon:
        assert daemon.ended() == 74
        assert "[tls]" in daemon.said()
        assert listen.rpartition(":")[0] in daemon.said()
        assert "Traceback" not in daemon.said()


@pytest.mark.parametrize("lines", ['colour = "red"\n', '[poll]\ncolour = "red"\n', '[tls]\ncolour = "red"\n'])
@pytest.mark.parametrize("module", [BORGMASTER, BORGLET])
def test_an_unknown_key_is_refused_by_file_and_key(tmp_path: Path, module: str, lines: str) -> None:
    config = configuration(tmp_path, module, lines)
    with foreground(module, config) as daemon:
        assert daemon.ended() == 74
        assert str(config) in daemon.said()
        named = "poll" if "[poll]" in lines and module == BORGLET else "colour"
        assert named in daemon.said()
        assert "Traceback" not in daemon.said()


def configuration(folder: Path, module: str, lines: str) -> Path:
    """Write the least that a daemon's file needs, and these lines."""
    config = folder / "daemon.toml"
    if module == BORGMASTER:
        config.write_text(f'name = "local"\nstate = "state"\n{lines}')
    else:
        config.write_text(
            'machine = "m1"\nmaster = "http://127.0.0.1:7400"\njoin_token_file = "join.token"\n'
            f'state = "state"\nports = "20000-20999"\n{lines}'
        )
    return config
