"""Which resources of a name of their own look like a slip, and which are meant."""

import pytest

from borgish.spec.read import read_job
from borgish.spec.slips import resource_slips, usual_resource


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("rma", "ram"), ("rams", "ram"), ("ra", "ram"), ("rom", "ram"), ("cp", "cpu"), ("cpus", "cpu")),
        *(("device", "devices"), ("dsik", "disk"), ("disc", "disk"), ("Ram", "")),
        *(("gpu", ""), ("tpu", ""), ("licences", ""), ("arm64", ""), ("mar", ""), ("x", "")),
    ],
)
def test_what_is_one_slip_away(name: str, meant: str) -> None:
    assert usual_resource(name) == meant


def test_a_slip_of_one_task_is_found_too() -> None:
    text = "name: web\ntasks: 2\nrun: [x]\nresources: {slots: 1}\noverrides: {1: {resources: {cpi: 2}}}\n"
    assert [name for name, _ in resource_slips(read_job(text, "ann"))] == ["cpi"]
