"""Names as people shorten them."""

import pytest

from borgish.cli.lookup import match_job, match_machine, match_subject, match_task
from borgish.errors import Invalid, NotFound

JOBS = ["ann/web", "bob/web", "ann/store", "web/0"]


def test_the_user_can_be_left_out_where_the_name_is_unique() -> None:
    assert match_job("store", JOBS) == "ann/store"
    assert match_task("store/3", JOBS) == ("ann/store", 3)
    assert match_task("ann/web/12", JOBS) == ("ann/web", 12)


def test_several_that_fit_are_listed() -> None:
    with pytest.raises(Invalid) as caught:
        match_job("web", JOBS)
    assert "ann/web, bob/web" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "near"), [("stroe", "ann/store"), ("sto", "ann/store"), ("an/store", "ann/store")]
)
def test_unknown_names_bring_the_nearest(text: str, near: str) -> None:
    with pytest.raises(NotFound) as caught:
        match_job(text, JOBS)
    assert near in caught.value.hint


def test_a_job_is_never_completed_from_a_beginning() -> None:
    with pytest.raises(NotFound):
        match_job("stor", JOBS)


def test_unknown_names_in_an_empty_cell() -> None:
    with pytest.raises(NotFound, match="there is no job 'x'"):
        match_job("x", [])


def test_a_subject_is_a_job_or_a_task() -> None:
    assert match_subject("store", JOBS) == "ann/store"
    assert match_subject("store/2", JOBS) == "ann/store/2"
    assert match_subject("ann/store/2", JOBS) == "ann/store/2"
    with pytest.raises(Invalid) as caught:
        match_subject("web/0", JOBS)  # a job of user web, and tasks of two jobs
    assert "web/0" in caught.value.hint
    assert "ann/web/0" in caught.value.hint


@pytest.mark.parametrize("text", ["store", "store/x", "store/-1", "store/01", ""])
def test_what_is_no_task(text: str) -> None:
    with pytest.raises(Invalid, match="is not the name of a task"):
        match_task(text, JOBS)


@pytest.mark.parametrize("indexes", ["0-9", "0,2", "0-2,5"])
def test_several_tasks_are_no_task_and_what_takes_them_is_said(indexes: str) -> None:
    with pytest.raises(Invalid, match="is not the name of a task") as caught:
        match_task(f"store/{indexes}", JOBS)
    assert caught.value.hint == (
        "One at a time; `borgctl job kill store` ends all of the job, and "
        f"`borgctl job restart store {indexes}` restarts these tasks"
    )


def test_machines_by_a_beginning_that_is_unique() -> None:
    machines = ["rack1-a", "rack1-b", "rack2-a", "rack2"]
    assert match_machine("rack2", machines) == "rack2"
    assert match_machine("rack1-b", machines) == "rack1-b"
    with pytest.raises(Invalid):
        match_machine("rack1", machines)
    with pytest.raises(NotFound):
        match_machine("", machines)
