"""Which named resources look like a typing error, and which are meant."""

import pytest

from borgish.spec.file.mistakes import resource_typos, standard_resource
from borgish.spec.file.read import read_job


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("rma", "ram"), ("rams", "ram"), ("ra", "ram"), ("rom", "ram"), ("cp", "cpu"), ("cpus", "cpu")),
        *(("device", "devices"), ("dsik", "disk"), ("disc", "disk"), ("Ram", "")),
        *(("gpu", ""), ("tpu", ""), ("licences", ""), ("arm64", ""), ("mar", ""), ("x", "")),
    ],
)
def test_what_is_one_slip_away(name: str, meant: str) -> None:
    assert standard_resource(name) == meant


def test_a_slip_of_one_task_is_found_too() -> None:
    text = "name: web\ntasks: 2\nrun: [x]\nresources: {slots: 1}\noverrides: {1: {resources: {cpi: 2}}}\n"
    assert [name for name, _ in resource_typos(read_job(text, "ann"))] == ["cpi"]
