"""Files of crons that run an application: what they may say, and every mistake where it is."""

import pytest
import yaml

from borgish.errors import Invalid
from borgish.spec.cron import CronSpec, file_schema, read_cron, write_cron
from borgish.spec.file.documents import Source, read_documents
from borgish.vocabulary import Missed, Overlap
from tests.unit.spec.test_spec_schema import fits

TEXT = """kind: cron
name: nightly
schedule: "0 2 * * *"
overlap: allow
missed: all
keep: 3
app: pipeline
"""


def test_it_has_an_application_instead_of_a_job() -> None:
    spec = read_cron(TEXT, "ann")
    assert (spec.key, spec.app_key, spec.keep) == ("ann/nightly", "ann/pipeline", 3)
    assert (spec.overlap, spec.missed) == (Overlap.ALLOW, Missed.ALL)
    assert read_cron(write_cron(spec), "bob") == spec
    assert fits(file_schema(), yaml.safe_load(TEXT))


@pytest.mark.parametrize(
    ("more", "line", "words"),
    [
        ("run: [sh]", 8, "run: the jobs of the application have their own"),
        ("tasks: 7000000", 8, "tasks: the jobs of the application have their own"),
        ("env: {A: b}", 8, "env: the jobs of the application have their own"),
        ("restart: {policy: always}", 8, "restart: the jobs of the application have their own"),
        ("appp: x", 8, "'appp' is not a field of the cron"),
    ],
)
def test_a_field_of_a_job_is_a_mistake(more: str, line: int, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_cron(f"{TEXT}{more}\n", "ann")
    (mistake,) = caught.value.mistakes
    assert words in mistake.message
    assert (mistake.line, bool(mistake.hint)) == (line, True)
    assert not fits(file_schema(), yaml.safe_load(f"{TEXT}{more}\n"))


@pytest.mark.parametrize(("length", "is_refused"), [(256, False), (257, True), (1_000_000, True)])
def test_a_schedule_has_a_maximum_length(length: int, is_refused: bool) -> None:
    minute = "0" if length % 2 else "00"
    schedule = f"{minute} {'2,' * ((length - 9) // 2)}2 * * *"
    assert len(schedule) == length
    text = TEXT.replace("0 2 * * *", schedule)
    assert fits(file_schema(), yaml.safe_load(text)) is not is_refused
    if not is_refused:
        assert read_cron(text, "ann").schedule == schedule
        return
    with pytest.raises(Invalid) as caught:
        read_cron(text, "ann")
    (mistake,) = caught.value.mistakes
    assert mistake.message == f"schedule: a schedule of {length} characters; at most 256 are allowed"
    assert (mistake.path, "*/15" in mistake.hint) == ("schedule", True)


def test_all_mistakes_are_found_at_once() -> None:
    text = TEXT.replace("pipeline", "bob/pipeline").replace("name: nightly\n", "") + "image: x\nrun: [sh]\n"
    with pytest.raises(Invalid) as caught:
        read_cron(text, "ann")
    found = [mistake.message for mistake in caught.value.mistakes]
    assert len(found) == 4
    assert any("an application is named without its user" in each for each in found)


def test_without_an_application_a_job_is_needed() -> None:
    with pytest.raises(Invalid, match="run is missing"):
        read_cron(TEXT.replace("app: pipeline\n", ""), "ann")


def test_it_is_a_document_among_others() -> None:
    text = f"kind: app\nname: pipeline\n---\nname: load\nrun: [sh]\nrestart: {{policy: never}}\n---\n{TEXT}"
    (cron,) = read_documents([Source("x.yaml", text)], "ann").crons
    assert isinstance(cron, CronSpec)
    assert cron.app_key == "ann/pipeline"
