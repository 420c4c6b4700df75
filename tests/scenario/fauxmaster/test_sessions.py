"""fauxmaster as people use it: through what happened, and into what would be if; by commands and by pipe."""

import hashlib
import json
from pathlib import Path

import pytest

from borgish.errors import Conflict
from borgish.spec.job import JobSpec
from tests.scenario.fauxmaster.asked import Asker, expect_recorded

PAST = """\
show
# a remark, and an empty line

step 2
next jobsubmitted ann/web
diff
at noon
next kill
show web
"""
COPY = """\
submit prod.yaml
diff
step
"""
QUESTIONS = """\
fits more.yaml
evicts more.yaml
evicts submit prod.yaml
evicts drain m3
lose rack=r2
lose machine=m1 machine=m2
compact --trials 3
show
"""


def test_the_past_is_gone_through(asker: Asker) -> None:
    expect_recorded("past", asker.ok("open", "cell.db", "--at", "noon", stdin=PAST))


def test_a_copy_goes_its_own_way(asker: Asker) -> None:
    said = asker.ask("open", "cell.db", stdin=COPY)
    expect_recorded("copy", said.out + said.err)
    assert said.code == 1


def test_questions_leave_no_trace(asker: Asker) -> None:
    said = asker.ok("open", "cell.db", stdin=QUESTIONS)
    expect_recorded("questions", said)
    assert asker.ok("show", "cell.db") == said[said.rindex("cell kept at") :]


CHANGES = (
    ("drain m1", "m1 is drained: "),
    ("undrain m1", "m1 is not drained"),
    ("cordon m1", "m1 takes no new tasks"),
    ("uncordon m6", "m6 takes tasks again"),
    ("kill web/0", "1 task of ann/web killed"),
    ("restart web", "8 tasks of ann/web restart, a few at a time"),
    ("scale db 9", "ann/db scaled from 3 to 9 tasks"),
    ("taint m1 slow=yes:avoid", "m1 is tainted slow"),
    ("taint m1 slow=yes --effect evict", "m1 is tainted slow"),
    ("taint m1 slow", "m1 is tainted slow"),
    ("quota ann batch --cpu 4 --ram 1GiB", "ann may ask for 4 cpu"),
    ("submit more.yaml", "ann/more submitted: 4 tasks"),
    ("run 60", "nothing happened"),
    ("why", "nothing waits"),
    ("why ann/web/0", "ann/web/0 does not wait"),
)


@pytest.mark.parametrize(("line", "said"), CHANGES, ids=[line for line, _ in CHANGES])
def test_every_change_can_be_made_and_let_go_of(asker: Asker, line: str, said: str) -> None:
    here = asker.ok("show", "cell.db")
    out = asker.ok("open", "cell.db", stdin=f"schedule\n{line}\nback\nshow\n")
    assert said in out
    assert out.endswith(here)


def test_a_refused_change_leaves_no_copy(asker: Asker) -> None:
    said = asker.ask("open", "cell.db", "-c", "scale db 0")
    assert "0 is outside 1 to 10000 tasks" in said.err
    assert asker.ask("open", "cell.db", "-c", "untaint m1 x").err.startswith("error: m1 has no taint x\n")


def test_a_drain_empties_the_machine_and_all_goes_elsewhere(asker: Asker) -> None:
    out = asker.ok("open", "noon.checkpoint", "-c", "drain m3", "-c", "show m3", "-c", "why")
    assert "m3 is drained: 1 task to leave" in out
    assert "tasks placed there: 0" in out
    assert out.endswith("nothing waits\n")


def test_the_opened_file_is_not_written_to(asker: Asker) -> None:
    files = [asker.folder / "cell.db", asker.folder / "noon.checkpoint"]
    before = [hashlib.sha256(file.read_bytes()).digest() for file in files]
    for file in files:
        asker.ask(
            "open", file, stdin="schedule\nsubmit prod.yaml\ndrain m1\nback\nfits more.yaml\nlose rack=r1\n"
        )
    assert [hashlib.sha256(file.read_bytes()).digest() for file in files] == before


def test_single_commands_say_the_same_as_the_prompt(asker: Asker) -> None:
    piped = asker.ok("open", "cell.db", stdin="fits more.yaml\n")
    assert asker.ok("fits", "cell.db", "more.yaml") == piped
    assert asker.ok("fits", f"sqlite:///{asker.folder}/cell.db", "more.yaml") == piped


def test_answers_are_data_too(asker: Asker) -> None:
    script = "show\nstep\nnext TasksPlaced\ndiff\nfits more.yaml\nlose rack=r3\ncompact --trials 1\n"
    lines = asker.ok("open", "cell.db", "--at", "noon", "--json", stdin=script).splitlines()
    show, step, following, diff, fits, lose, compact = map(json.loads, lines)
    assert (show["machines"], show["running"]) == (6, 9)
    assert step["entries"][0]["asked"] == "cordon"
    assert following["passed"] == 2
    assert [change["name"] for change in diff["changes"]["jobs"]] == ["ann/web"]
    assert fits["tasks"] == 6
    assert lose["again"] == sum(map(len, (job.split(",") for job in lose["lost"].values())))
    assert compact["result"] == 4


def test_why_one_task_waits(asker: Asker) -> None:
    out = asker.ok("open", "cell.db", "-c", "submit huge.yaml", "-c", "scale huge 3", "-c", "why huge/1")
    assert out.splitlines()[-2].startswith("ann/huge/1 waits: ")


def test_somebody_evicted_is_an_exit_code(asker: Asker) -> None:
    assert asker.ask("evicts", "cell.db", "more.yaml").code == 0
    assert asker.ask("evicts", "cell.db", "drain", "m3").code == 3
    assert asker.ask("lose", "cell.db", "machine=m3").code == 0
    assert asker.ask("evicts", "cell.db", "submit", "prod.yaml").code == 3


def test_a_mass_failure_is_taken_for_one(asker: Asker) -> None:
    out = asker.ok("lose", "cell.db", "rack=r1", "rack=r2")
    assert "takes it for a fault of its own network" in out


def test_the_journal_is_decided_anew(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    expect_recorded("replay", asker.ok("replay", "cell.db", "--from", "noon"))
    assert json.loads(asker.ok("replay", "cell.db", "--json"))["decided"] == 15
    monkeypatch.setattr("borgish.cell.decide.task_count", lambda count: f"{count} t")  # words do not matter
    assert asker.ok("replay", "cell.db", "--from", 3, "--to", 12).endswith("as they are recorded\n")
    monkeypatch.setattr("borgish.cell.decide.admit", refuse_bad)
    said = asker.ask("replay", "cell.db", "--from", "noon")
    expect_recorded("replay-otherwise", said.out)
    assert said.code == 3


def refuse_bad(_cell: object, spec: JobSpec, *_: object) -> None:
    """What another version may think of it."""
    if spec.env.get("VERSION") == "bad":
        raise Conflict("the bad version is known to be bad")


BAD = (
    (["show", "nowhere.db"], "No such file", "checkpoint export"),
    (["show", "more.yaml"], "neither a cell's database nor an exported checkpoint", "DIR/cell.db"),
    (["show", "mysql://host/x"], "cannot hold a cell", "sqlite:///"),
    (["show", "cell.db", "--at", "99"], "position 99 is not in cell.db", "It ends at 15"),
    (["show", "cell.db", "--at", "2001-01-01"], "the cell had no history yet", "The earliest is position 1"),
    (["show", "cell.db", "--at", "2099-01-01"], "is after the end of cell.db", "It ends at position 15"),
    (["show", "cell.db", "--at", "evening"], "no checkpoint 'evening' is in cell.db", "a checkpoint: noon"),
    (["show", "cell.db", "--at", "///"], "invalid moment", "Give a time"),
    (["show", "noon.checkpoint", "--at", "3"], "position 3 is not in noon.checkpoint", "--with-journal"),
    (["show", "cell.db", "nobody"], "there is no machine 'nobody' here", "There are m1"),
    (["step", "noon.checkpoint"], "nothing more is in noon.checkpoint", "--with-journal"),
    (["next", "cell.db", "TaskEvicted", "--at", "3"], "unknown event", "Did you mean TasksEvicted"),
    (["next", "cell.db", "xyz", "--at", "3"], "unknown event", "There are AppApplied"),
    (["next", "cell.db", "MachineDown", "--at", "3"], "no MachineDown follows position 3", "ends at 15"),
    (["step", "cell.db", "0", "--at", "3"], "0 is outside 1", "at POSITION"),
    (["submit", "cell.db", "gone.yaml"], "gone.yaml: No such file", "Name a job file"),
    (["fits", "cell.db", "bad.yaml"], "bad.yaml:2:8: tasks: 0 is outside", "did you mean run"),
    (["submit", "cell.db", "prod.yaml", "--what"], "unrecognized arguments", ""),
    (["evicts", "cell.db", "dain", "m1"], "there is no change 'dain'", "Did you mean drain"),
    (["evicts", "cell.db"], "which change?", "Name one of submit"),
    (["drain", "cell.db", "m9"], "there is no machine 'm9' here", "There are m1"),
    (["drain", "cell.db", "m"], "several machines begin with 'm'", "There are m1, m2"),
    (["taint", "cell.db", "m1", "x:hurt"], "invalid taint 'x:hurt'", "effects: avoid, refuse, evict"),
    (["taint", "cell.db", "m1", "x:evict", "--effect", "avoid"], "invalid taint", "--effect EFFECT"),
    (["why", "cell.db", "web/99"], "ann/web has no task 99", "It has 8"),
    (["run", "cell.db", "--", "-5"], "-5 seconds cannot pass", "at most 2592000, which is 30 days"),
    (["quota", "cell.db", "ann", "batch"], "without an amount", "--remove"),
    (["fits", "cell.db", "in.yaml"], "fauxmaster/in needs the alloc set fauxmaster/none", "alloc_set"),
    (["fits", "cell.db", "in.yaml", "--user", "ann"], "ann/in needs the alloc set ann/none", "alloc_set"),
    (["show", "cell.db", "--at", ""], "invalid moment ''", "Give a time"),
    (["quota", "cell.db", "ann", "gold"], "there is no band 'gold'", "Bands are monitoring"),
    (["kill", "cell.db", "wob"], "there is no job 'wob' here", ""),
    (["scale", "cell.db", "web", "0"], "0 is outside 1 to 10000 tasks", "job kill"),
    (["lose", "cell.db", "shelf=r1"], "no machine has the attribute 'shelf'", "There are machine, rack"),
    (["lose", "cell.db", "rack=r9"], "no machine has rack=r9", "There are r1, r2, r3"),
    (["lose", "cell.db", "m1"], "'m1' does not select machines", "machine=m1"),
    (["compact", "cell.db", "--trials", "0"], "0 is outside 1 to 1000 trials", ""),
    (["compact", "cell.db", "--policy", "tetris"], "there is no policy 'tetris'", "There are"),
    (["replay", "cell.db", "--from", "99"], "position 99 is not in cell.db", "It ends at 15"),
    (["replay", "cell.db", "--from", "9", "--to", "3"], "position 3 is before 9", "--from"),
    (["open", "cell.db", "-c", "stap"], "there is no command 'stap'", "Did you mean step"),
    (["open", "cell.db", "-c", "step x"], "invalid int value", "usage: step"),
    (["open", "cell.db", "-c", 'submit "x'], "cannot be read", "Close every quote"),
    (["open", "cell.db", "-c", "back"], "nothing was changed here", "nothing to undo"),
)


@pytest.mark.parametrize(("words", "error", "hint"), BAD, ids=[" ".join(words) for words, _, _ in BAD])
def test_what_is_wrong_is_said_with_a_way_out(asker: Asker, words: list[str], error: str, hint: str) -> None:
    said = asker.ask(*words)
    assert said.code in (1, 2, 74)
    assert error in said.err
    assert hint in said.err


def test_help_is_at_the_prompt(asker: Asker) -> None:
    out = asker.ok("open", "cell.db", stdin="help\nhelp step\nstep -h\nquit\nnever read\n")
    assert "  step      go through what really happened next" in out
    assert out.count("usage: step") == 2


def test_an_export_is_of_a_newer_version_or_altered(asker: Asker) -> None:
    file: Path = asker.folder / "noon.checkpoint"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"checkpoint 1", b"checkpoint 9", 1))
    assert "format 9" in asker.ask("show", file).err
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    said = asker.ask("show", file)
    assert "SHA-256 does not match" in said.err
    assert said.code == 72
