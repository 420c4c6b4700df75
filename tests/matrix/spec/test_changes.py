"""Every field of a specification: what another value of it means for a task that runs."""

from typing import Any

import msgspec
import pytest

from borgish.resources import Resources
from borgish.spec.changes import FIELDS, Fixed, TaskChange, changed_fields, same_program, task_change
from borgish.spec.job import Container, Disruption, Health, JobSpec, Override, Restart, Stop, Update
from borgish.spec.shares import Share
from tests.matrix.spec.test_job_fields import with_another

JOB = JobSpec("web", "ann", 3, ("serve",))
OTHERS: dict[str, Any] = {
    "container": Container("0"),
    "health": Health(tcp=True),
    "overrides": {1: Override(env={"ROLE": "first"})},
    "resources": Resources(5000),
    "fixed_ports": {"http": 80},
    "restart": Restart(attempts=3),
    "stop": Stop(grace_seconds=1.0),
    "disruption": Disruption(Share(2)),
    "max_failures": Share(2),
    "update": Update(canaries=1),
    **{field: {"a": "b"} for field in ("env", "labels", "annotations", "secret_env", "secret_files")},
}


def another(field: str) -> JobSpec:
    if field in OTHERS:
        return msgspec.structs.replace(JOB, **{field: OTHERS[field]})
    changed: JobSpec = with_another(JOB, field)
    return changed


def test_every_field_has_its_class() -> None:
    assert list(FIELDS) == [*dict.fromkeys(FIELDS)]
    assert FIELDS.keys() == set(JobSpec.__struct_fields__)


@pytest.mark.parametrize("field", JobSpec.__struct_fields__)
def test_what_another_value_means(field: str) -> None:
    other, change = another(field), FIELDS[field]
    assert changed_fields(JOB, other) == (field,)
    expected = TaskChange.NONE if isinstance(change, Fixed) else change
    assert task_change(JOB, other, 0) is expected
    assert same_program(JOB, other, 0) is (expected < TaskChange.RESTART)


def test_what_is_changed_of_one_task_restarts_that_one() -> None:
    other = another("overrides")
    assert [task_change(JOB, other, index) for index in range(3)] == [
        TaskChange.NONE,
        TaskChange.RESTART,
        TaskChange.NONE,
    ]


def test_of_several_changes_the_most_far_reaching_counts() -> None:
    other = msgspec.structs.replace(JOB, priority=7, run=("other",))
    assert task_change(JOB, other, 0) is TaskChange.RESTART
