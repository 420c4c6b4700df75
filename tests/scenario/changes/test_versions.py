"""The versions of a job as borgctl shows them, over the real API and core."""

import json
from collections.abc import Callable

import pytest

from borgish.cell.model import VERSIONS_KEPT
from borgish.spec.file.read import read_job
from borgish.wire.api import Accepted, IndexesRequest, ScaleRequest, VersionDetail, VersionList
from tests.scenario.quota.real import CoreApi

WEB = "/v1/jobs/ann/web"
JOB = """\
name: web
user: ann
tasks: 2
run: [serve, v{n}]
env: {{SECRET: x{n}}}
resources: {{cpu: 1m, ram: 4MiB}}
"""
Say = Callable[..., tuple[int, str, str]]


def submit(api: CoreApi, n: int, who: str = "bgt_ann") -> None:
    client = api.client(who)
    if "ann/web" in api.master.cell.jobs:
        client.post(f"{WEB}/kill", IndexesRequest(), Accepted)
    client.post("/v1/jobs", JOB.format(n=n).encode(), Accepted, content_type="application/yaml")
    client.close()


def test_history_tells_who_changed_what(api: CoreApi, say: Say) -> None:
    submit(api, 1)
    submit(api, 2, "bgt_admin")
    code, out, err = say("reader", "job", "history", "web")
    assert (code, err) == (0, "")
    assert [line.split(None, 4)[0::2] for line in out.splitlines()] == [
        ["VERSION", "BY", "CHANGES"],
        ["1", "ann", "-"],
        ["2", "root", 'run: ["serve", "v1"] -> ["serve", "v2"]; env.SECRET: changed'],
    ]
    assert [line.split()[3] for line in out.splitlines()[1:]] == ["0", "2"]
    shown = json.loads(say("reader", "job", "history", "web", "-o", "json")[1])
    assert [each["version"] for each in shown] == [1, 2]
    assert say("reader", "job", "history", "web", "-o", "name")[1] == "ann/web@1\nann/web@2\n"


def test_scaling_is_no_version(api: CoreApi) -> None:
    submit(api, 1)
    api.client().post(f"{WEB}/scale", ScaleRequest(3), Accepted)
    assert [each.version for each in api.client().get(f"{WEB}/versions", None, VersionList).items] == [1]


def test_a_version_is_shown_as_the_job_file_it_was(api: CoreApi, say: Say) -> None:
    submit(api, 1)
    submit(api, 2)
    code, out, _ = say("ann", "job", "show", "web", "--version", 1)
    head, _, text = out.partition("\n\n")
    assert code == 0
    assert "version   1\n" in head
    assert read_job(text, "nobody") == read_job(JOB.format(n=1), "ann")
    assert "version   2, the present one\n" in say("ann", "job", "show", "web", "--version", 2)[1]
    code, _, err = say("ann", "job", "show", "web", "--version", 3)
    assert (code, "no version 3 of ann/web is kept" in err) == (1, True)


@pytest.mark.parametrize(("token", "seen"), [("bgt_ann", "x1"), ("bgt_admin", "x1"), ("bgt_bob", "***")])
def test_values_of_the_environment_are_not_for_everybody(api: CoreApi, token: str, seen: str) -> None:
    submit(api, 1)
    submit(api, 2)
    found = api.client(token).get(f"{WEB}/versions/1", None, VersionDetail)
    assert found.spec.env == {"SECRET": seen}


def test_so_many_are_kept(api: CoreApi) -> None:
    for n in range(VERSIONS_KEPT + 5):
        submit(api, n)
    items = api.client().get(f"{WEB}/versions", None, VersionList).items
    assert [each.version for each in items] == list(range(6, VERSIONS_KEPT + 6))
    assert [each.present for each in items] == [False] * (VERSIONS_KEPT - 1) + [True]
