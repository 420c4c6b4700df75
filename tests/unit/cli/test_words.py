"""Words of other systems: what works, what is meant, and that nothing dangerous is offered by chance."""

import re
import shlex

import pytest

import borgish
from borgish.cli.borgctl import COMMANDS
from borgish.cli.words import DANGEROUS, SAME, like, meant_at_top, same_command
from tests.unit.cli.commands import commands
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster, job, task

MEANT = [
    ("get pods", "task list"),
    ("get po -o wide", "task list -o wide"),
    ("get pod web/0", "task show web/0"),
    ("get deployment/web", "job show web"),
    ("get nodes", "machine list"),
    ("get events", "events"),
    ("get cj nightly", "cron show nightly"),
    ("get secret db", "secret list"),
    ("get web", "job show web"),
    ("get", "job list"),
    ("describe node m1", "machine show m1"),
    ("describe web/3", "task show web/3"),
    ("delete job web --max-affected 3", "job kill web --max-affected 3"),
    ("delete pod web/0", "task kill web/0"),
    ("delete node m1", "machine remove m1"),
    ("delete secret db", "secret remove db"),
    ("delete namespace ann", "user remove ann"),
    ("delete checkpoint 40", "checkpoint delete 40"),
    ("edit deploy web", "job edit web"),
    ("drain m1 --deadline 1h", "machine drain m1 --deadline 1h"),
    ("drain m1 --ignore-daemonsets", "machine drain m1"),
    ("drain --grace-period 30 m1 --deadline 1h --force", "machine drain m1 --deadline 1h --force"),
    ("get pods -n shop --sort=-cpu -owide", "task list --sort=-cpu -owide"),
    ("get pods --namespace=shop -A", "task list"),
    ("job delete web --cascade=foreground", "job kill web"),
    ("cordon m1", "machine cordon m1"),
    ("scale web 3", "job scale web 3"),
    ("rollout undo deployment/web", "job undo web"),
    ("rollout status web", "job update status web"),
    ("run nginx", "job submit FILE"),
    ("create -f web.yaml", "job submit web.yaml"),
    ("job status web", "job show web"),
    ("job stauts web", "job show web"),
    ("job delete web", "job kill web"),
    ("task ls", "task list"),
    ("machine rm m1", "machine remove m1"),
    ("get 'a b'", "job show 'a b'"),
    ("apply -f web.yaml", "job submit web.yaml"),
    ("apply -f -", "job submit FILE"),
    ("attach web/0", "task exec -it web/0 -- sh"),
    ("pods", "task list"),
    ("node status", "machine list"),
    ("node status m1", "machine show m1"),
    ("node drain -enable m1", "machine drain m1"),
    ("node", "machine list"),
    ("alloc status", "task list"),
    ("alloc status web/0", "task show web/0"),
    ("alloc logs web/0", "task logs web/0"),
    ("alloc exec web/0 sh", "task exec web/0 sh"),
    ("deployment", "job list"),
    ("deployment status web", "job update status web"),
    ("deployment promote", "job update promote JOB"),
    ("job promote web", "job update promote web"),
    ("top", "dashboard"),
    ("top nodes", "machine list"),
    ("top node m1", "machine show m1"),
    ("top pods", "task list --sort -cpu"),
    ("scale deploy web --replicas=3", "job scale web 3"),
    ("scale --replicas 3 deployment/web", "job scale web 3"),
    ("scale web", "job scale web N"),
    ("taint nodes m1 a=b:NoSchedule", "machine taint m1 a=b --effect refuse"),
    ("taint node m1 a:NoExecute", "machine taint m1 a --effect evict"),
    ("taint nodes m1 a=b:NoSchedule-", "machine untaint m1 a"),
    ("taint m1 a --effect avoid", "machine taint m1 a --effect avoid"),
    ("start web", "job restart web"),
    ("update web", "job submit FILE"),
    ("squeue", "job list"),
    ("sbatch run.sh", "job submit FILE"),
    ("srun job.yaml", "job submit job.yaml"),
    ("scancel web", "job kill web"),
    ("sinfo", "machine list"),
]


@pytest.mark.parametrize(("words", "meant"), MEANT)
def test_the_right_command_is_named_with_the_arguments_that_were_given(
    words: str, meant: str, run: Run, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*shlex.split(words)) == 2
    assert f"Did you mean 'borgctl {meant}'?" in capsys.readouterr().err
    assert master.asked == []


@pytest.mark.parametrize("meant", sorted({meant for _, meant in MEANT}))
def test_what_is_named_can_be_typed(meant: str) -> None:
    known, words = dict(commands()), shlex.split(re.sub(r"\bN$", "3", meant))
    path = max((path for path in known if [*path] == words[: len(path)]), key=len)
    with known[path].make_context(path[-1], words[len(path) :]):  # raises what is wrong with them
        pass


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("donw", "'down'"),
        ("rollbak", "'rollback'"),
        ("job kil", "'kill'"),
        ("job restat", "'restart'"),
        ("job lst", "'list'"),
        ("roll", ""),
        ("done", ""),
        ("machine move m1", ""),
        ("zzz", ""),
    ],
)
def test_what_is_misspelt(words: str, offered: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words.split()) == 2
    said = capsys.readouterr().err
    assert "No such command" in said
    assert (f"Did you mean {offered}?" in said) if offered else ("Did you mean" not in said)


def every_command() -> list[tuple[str, ...]]:
    """Return the words of every command and group."""
    return [path for path, _ in commands()]


def test_no_word_stands_for_what_is_not_there_and_none_hides_a_command() -> None:
    known = every_command()
    for other in (
        *("attach", "cordon", "drain", "top", "stop", "run", "edit", "inspect", "restart"),
        *("squeue", "sinfo", "pods", "node", "alloc", "deployment", "rollout"),
    ):
        named = tuple(word for word in meant_at_top([other]).split() if word not in ("FILE", "-it"))
        assert named in known, other
    for kind in (
        "pod",
        "job",
        "node",
        "cj",
        "secret",
        "ns",
        "app",
        "pdb",
        "quota",
        "group",
        "token",
        "checkpoint",
    ):
        for verb in ("get", "delete", "describe"):
            assert tuple(meant_at_top([verb, kind]).split()) in known, (verb, kind)
    assert not set(SAME) & set(COMMANDS)
    assert all(words in known for words in SAME.values() if words != ("--version",))


def test_what_is_dangerous_is_a_command() -> None:
    assert {path[-1] for path in every_command()} >= DANGEROUS


@pytest.mark.parametrize("word", ["status", "show", "look", "list", "start", "ready", "roll", "revert"])
def test_nothing_dangerous_is_offered_for_another_word(word: str) -> None:
    names = {path[-1] for path in every_command()}
    assert not {*like(word, names)} & DANGEROUS


def test_words_that_work(run: Run, master: FakeMaster, capsys: pytest.CaptureFixture[str]) -> None:
    master.has(job())
    master.answers["GET /v1/tasks"] = {"items": [task()]}
    assert run("ps", "-o", "name") == 0
    assert run("ls", "-o", "name") == 0
    assert run("version") == 0
    assert capsys.readouterr().out == f"ann/web/0\nann/web\nborgctl {borgish.__version__}\n"
    assert run("exec", "web/0") == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("help", "Run jobs on a cell of machines."),
        ("help job", "Submit, inspect, change and end jobs."),
        ("help job submit", "Submit jobs and follow them"),
        ("help ps", "List tasks."),
    ],
)
def test_help_of_a_command(words: str, shown: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words.split()) == 0
    assert shown in capsys.readouterr().out


def test_help_of_what_is_not_there(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("help", "pods") == 2
    assert "No such command 'pods'" in capsys.readouterr().err
    assert same_command(["version", "1"]) is None
