"""borgctl job init: the file that it writes is one that is accepted, and none is lost."""

import shlex
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from borgish.bands import DEFAULT_BANDS
from borgish.spec.cron import CronSpec, read_job_or_cron
from borgish.spec.job import JobSpec
from borgish.vocabulary import RestartPolicy, Runtime
from tests.unit.cli.conftest import Run

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A person at a terminal, who types these lines."""
    for module in ("commands.job_init", "confirm"):
        monkeypatch.setattr(f"borgish.cli.{module}.is_terminal", lambda _: True)
    return lambda *lines: monkeypatch.setattr("sys.stdin", StringIO("".join(f"{line}\n" for line in lines)))


def written(path: Path) -> JobSpec:
    found = read_job_or_cron(path.read_text(), "ann", DEFAULT_BANDS)
    assert not isinstance(found, CronSpec)
    return found


def test_all_questions_are_answered(run: Run, here: Path, answers: Callable[..., None], capsys: Out) -> None:
    serve = "python3 -m http.server {{port.http}} --directory 'my files'"
    answers("web", "", serve, "3", "http, admin", "/", "y", "200m", "64MiB")
    assert run("job", "init") == 0
    spec = written(here / "web.yaml")
    assert (spec.name, spec.tasks, spec.ports) == ("web", 3, ("http", "admin"))
    assert spec.run == ("python3", "-m", "http.server", "{{port.http}}", "--directory", "my files")
    assert spec.health is not None
    assert (spec.health.http, spec.health.port) == ("/", "http")
    assert (spec.resources.cpu_millis, spec.resources.ram_bytes) == (200, 64 * 1024**2)
    assert spec.is_service
    said = capsys.readouterr()
    assert said.out.strip() == "web.yaml: valid: job ann/web, 3 tasks, process\nwrote web.yaml"
    assert "borgctl job submit web.yaml" in said.err


def test_what_is_given_is_not_asked_and_a_script_is_asked_nothing(run: Run, here: Path) -> None:
    given = ("--name", "sum", "--run", "sh -c 'exit 0'", "--tasks", 7, "--once", "--ram", "32MiB")
    assert run("job", "init", "deep.yaml", *given) == 0
    spec = written(here / "deep.yaml")
    assert (spec.tasks, spec.run, spec.restart.policy) == (
        7,
        ("sh", "-c", "exit 0"),
        RestartPolicy.ON_FAILURE,
    )
    assert spec.ports == ()


def test_a_container(run: Run, here: Path) -> None:
    assert (
        run("job", "init", "--name", "box", "--image", "busybox:1", "--port", "http", "--health", "/ok") == 0
    )
    spec = written(here / "box.yaml")
    assert (spec.runtime, spec.image, spec.ports) == (Runtime.DOCKER, "busybox:1", ("http",))


@pytest.mark.parametrize("value", ["a: b", "# no comment", "'", '"', "{{task.index}}", "ü", "- x", "true"])
def test_values_stay_what_was_typed(run: Run, here: Path, value: str) -> None:
    assert run("job", "init", "--name", "odd", "--run", f"echo {shlex.quote(value)}") == 0
    assert written(here / "odd.yaml").run == ("echo", value)


def test_a_file_that_is_there_is_not_lost(run: Run, here: Path, capsys: Out) -> None:
    (here / "web.yaml").write_text("mine")
    assert run("job", "init", "--name", "web") == 2
    assert "nothing was done: this replaces the file web.yaml" in capsys.readouterr().err
    assert (here / "web.yaml").read_text() == "mine"
    assert run("job", "init", "--name", "web", "--yes") == 0
    assert written(here / "web.yaml").tasks == 1


def test_a_person_is_asked_about_a_file_that_is_there(
    run: Run, here: Path, answers: Callable[..., None]
) -> None:
    (here / "web.yaml").write_text("mine")
    answers("web", "n")
    assert run("job", "init") == 1
    assert (here / "web.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "a job needs a name"),
        (("--name", "Web"), "'Web' is not the name of a job"),
        (("--name", "web", "--run", "echo 'x"), "cannot be read: no closing quotation"),
    ],
)
def test_what_is_no_job(given: tuple[str, ...], said: str, run: Run, here: Path, capsys: Out) -> None:
    assert run("job", "init", *given) == 2
    assert said in capsys.readouterr().err
    assert list(here.glob("*.yaml")) == []


def test_what_the_file_has_wrong_is_shown_in_it(run: Run, here: Path, capsys: Out) -> None:
    assert run("job", "init", "--name", "web", "--cpu", "many") == 2
    assert "web.yaml is written, with what is wrong in it" in capsys.readouterr().err
    assert (here / "web.yaml").exists()
