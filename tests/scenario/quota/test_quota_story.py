"""Quotas from the admin's first word to the user's refusal: borgctl, the API, the core that decides."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from borgish.bands import Bands
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Rules
from borgish.errors import UnsafeConfiguration
from borgish.vocabulary import Band, State
from borgish.wire.api import Accepted, QuotaRequest
from tests.scenario.quota.real import CoreApi

Say = Callable[..., tuple[int, str, str]]
MIB = 1024**2


def job(path: Path, name: str, tasks: int, priority: str = "production", more: str = "") -> Path:
    file = path / f"{name}.yaml"
    needs = "{cpu: 500m, ram: 64MiB}"
    file.write_text(
        f"name: {name}\ntasks: {tasks}\npriority: {priority}\nrun: [x]\nresources: {needs}\n{more}"
    )
    return file


def test_from_open_to_limited_and_back(api: CoreApi, say: Say, tmp_path: Path) -> None:
    submit = ("job", "submit", "--detach", "--user", "ann")
    assert say("ann", *submit, job(tmp_path, "open", 4))[0] == 0
    assert say("admin", "quota", "list", "-o", "name")[1] == "ann/production\n"
    assert "no limit" in say("ann", "quota", "list")[1]

    code, _, err = say("ann", "quota", "set", "ann", "--band", "prod", "--cpu", 99, "--ram", "1GiB")
    assert (code, "needs the role admin" in err) == (4, True)
    setting = ("quota", "set", "ann", "--band", "prod", "--cpu", 3, "--ram", "1GiB")
    said = "ann may ask for 3 cpu, 1GiB ram in production\n"
    assert say("admin", *setting) == (0, said, "")

    code, _, err = say("ann", *submit, job(tmp_path, "more", 3))
    assert code == 1
    assert (
        "error: ann/more asks for 1.5 cpu in production; quota 3, used 2: 500m cpu missing\n"
        "hint: ask for less, end something else, or write `priority: free`" in err
    )
    assert "ann/more" not in api.master.cell.jobs
    assert say("ann", *submit, job(tmp_path, "more", 2))[0] == 0
    assert all(task.state is State.RUNNING for task in api.master.cell.jobs["ann/more"].tasks)
    assert say("ann", "job", "scale", "ann/more", 3)[0] == 1
    assert say("ann", *submit, job(tmp_path, "low", 9, "free"))[0] == 0
    assert say("bob", "job", "submit", "--detach", "--user", "bob", job(tmp_path, "bobs", 1))[0] == 0

    (shown,) = json.loads(say("ann", "quota", "list", "ann", "-o", "json")[1])
    assert (shown["used"]["cpu_millis"], shown["free"]["cpu_millis"]) == (3000, 0)
    table = say("ann", "quota", "list")[1].splitlines()
    assert table[0].split() == ["USER", "BAND", "LIMIT", "USED", "FREE", "UNTIL"]
    assert table[1].split("  ")[0] == "ann"
    assert "3 cpu, 384MiB ram" in table[1]

    assert say("ann", "job", "kill", "--yes", "ann/open")[0] == 0
    assert say("ann", "job", "scale", "ann/more", 6)[0] == 0
    code, _, err = say("ann", "job", "restart", "ann/open")
    assert (code, "ann/open asks for 2 cpu in production; quota 3, used 3: 2 cpu missing" in err) == (1, True)
    assert say("admin", "quota", "remove", "--yes", "ann", "--band", "production")[0] == 0
    assert say("ann", "job", "restart", "ann/open")[0] == 0
    assert violations(api.master.cell) == []


def test_a_quota_ends_at_its_moment(api: CoreApi, say: Say, tmp_path: Path) -> None:
    setting = ("quota", "set", "ann", "--band", "batch", "--cpu", 2, "--ram", "1GiB", "--until", "1h")
    assert "until 2026-01-01 01:00 UTC" in say("admin", *setting)[1]
    submit = ("job", "submit", "--detach", "--user", "ann")
    assert say("ann", *submit, job(tmp_path, "early", 1, "batch"))[0] == 0
    api.do(lambda: api.master.pass_by(3600))
    code, _, err = say("ann", *submit, job(tmp_path, "late", 1, "batch"))
    assert (code, "(the quota of ann ended at 2026-01-01 01:00 UTC)" in err) == (1, True)
    assert api.master.cell.jobs["ann/early"].running == 1
    shown = say("ann", "quota", "show", "ann", "--band", "batch")[1]
    assert [line.split(None, 1) for line in shown.splitlines()] == [
        ["user", "ann"],
        ["band", "batch"],
        ["limit", "nothing"],
        ["used", "500m cpu, 64MiB ram"],
        ["free", "nothing"],
        ["until", "2026-01-01 01:00 UTC"],
        ["generation", "4"],
    ]


def test_production_has_no_more_than_the_cell_unless_told_to(say: Say) -> None:
    setting = ("quota", "set", "ann", "--band", "production", "--cpu", 20, "--ram", "8GiB")
    code, _, err = say("admin", *setting)
    assert (code, "would add up to 20 cpu, where the cell has 8: 12 cpu too much" in err) == (1, True)
    assert say("admin", *setting, "--beyond-cell")[0] == 0


def test_two_at_once_do_not_get_the_last_bit_twice(api: CoreApi, say: Say, tmp_path: Path) -> None:
    say("admin", "quota", "set", "ann", "--band", "production", "--cpu", 1, "--ram", "1GiB")
    files = [job(tmp_path, name, 2) for name in ("first", "second")]
    code, out, err = say("ann", "job", "submit", "--detach", "--user", "ann", *files)
    assert (code, out) == (1, "ann/first submitted: 2 tasks\n")
    assert "ann/second asks for 1 cpu in production; quota 1, used 1: 1 cpu missing" in err


def test_a_retry_after_the_quota_was_used_up_is_answered_as_the_first_time(api: CoreApi) -> None:
    admin, ann = api.client("bgt_admin"), api.client("bgt_ann")
    limits = QuotaRequest(500, 64 * MIB)
    admin.post("/v1/quotas/ann/production", limits, Accepted)
    text = b"name: once\npriority: prod\nrun: [x]\nresources: {cpu: 500m, ram: 64MiB}\n"
    ask = ("/v1/jobs", text, Accepted, "r1", None, "application/yaml")
    first = ann.post(*ask)
    again = ann.post(*ask)
    assert (again.position, again.replayed) == (first.position, True)


def test_a_name_of_a_band_is_known_where_the_cell_has_it(api: CoreApi, say: Say, tmp_path: Path) -> None:
    file = job(tmp_path, "named", 1, "prod")
    assert say("ann", "job", "check", file)[0] == 0
    assert say("ann", "job", "submit", "--detach", "--user", "ann", file)[0] == 0
    assert api.master.cell.jobs["ann/named"].spec.priority == 200
    code, _, err = say("ann", "job", "check", job(tmp_path, "wrong", 1, "prood"))
    assert (code, "not one of the bands monitoring, production, batch, free, prod" in err) == (2, True)
    assert '"prod"' in say("ann", "schema")[1]


def test_without_a_cell_the_usual_bands_are_known(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BORGISH_URL", "http://127.0.0.1:9")
    assert say("ann", "job", "check", job(tmp_path, "usual", 1))[0] == 0
    code, _, err = say("ann", "job", "check", job(tmp_path, "named", 1, "prod"))
    assert (code, "did you mean production?" in err) == (2, True)
    assert '"prod"' not in say("ann", "schema")[1]


def test_a_cell_may_require_quotas_and_move_bands_where_no_job_is(
    api: CoreApi, say: Say, tmp_path: Path
) -> None:
    submit = ("job", "submit", "--detach", "--user", "ann")
    say("ann", *submit, job(tmp_path, "web", 1, "250"))
    moved = Rules(Bands(production=240, batch=90, names={"mid": Band.BATCH}), quota_required=True)
    with pytest.raises(UnsafeConfiguration, match="ann/web, of priority 250, from production to batch"):
        api.do(lambda: api.master.begin(_copy(api), Rules(Bands(production=260))))
    api.do(lambda: api.master.begin(_copy(api), moved))
    code, _, err = say("ann", *submit, job(tmp_path, "two", 1, "mid"))
    assert (code, "(ann has no quota in batch, and this cell requires one)" in err) == (1, True)
    say("admin", "quota", "set", "ann", "--band", "mid", "--cpu", 1, "--ram", "1GiB")
    assert say("ann", *submit, job(tmp_path, "two", 1, "239"))[0] == 0
    assert say("ann", "job", "list", "-o", "json")[1].count('"band": "batch"') == 1


def _copy(api: CoreApi) -> Cell:
    """Return the cell as the next master reads it."""
    from borgish.store.codec import decode_snapshot, encode_snapshot

    return Cell(decode_snapshot(encode_snapshot(api.master.cell.snapshot()), "test"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cpu", "1"), "Missing option '--ram'"),
        (("--cpu", "1x", "--ram", "1GiB"), "--cpu: '1x' has the unit 'x'"),
        (("--cpu", "0.0001", "--ram", "1GiB"), "finer than a thousandth"),
        (("--cpu", "1", "--ram", "lots"), "--ram: 'lots' is not a number with a unit"),
        (("--cpu", "-1", "--ram", "1GiB"), "--cpu"),
        (("--cpu", "1", "--ram", "1GiB", "--device", "gpu"), "--device: 'gpu' is not NAME=N"),
        (("--cpu", "1", "--ram", "1GiB", "--device", "gpu=1", "--device", "gpu=2"), "'gpu' is given twice"),
        (("--cpu", "1", "--ram", "1GiB", "--named", "licence=0.5"), "'0.5' is not a whole number"),
        (("--cpu", "1", "--ram", "1GiB", "--until", "2020-01-01"), "2020-01-01 00:00 UTC is in the past"),
        (("--cpu", "1", "--ram", "1GiB", "--named", "Licence=1"), "named: invalid name 'Licence'"),
    ],
)
def test_what_is_no_quota_is_said(say: Say, words: tuple[str, ...], said: str) -> None:
    code, out, err = say("admin", "quota", "set", "ann", "--band", "batch", *words)
    assert (out, said in err) == ("", True), err
    assert code == 2


def test_bands_that_cannot_have_a_quota(say: Say) -> None:
    amounts = ("--cpu", 1, "--ram", "1GiB")
    for band, words in (("free", "the free band is not limited"), ("gold", "no band 'gold'")):
        code, _, err = say("admin", "quota", "set", "ann", "--band", band, *amounts)
        assert (code, words in err) == (2 if band == "free" else 1, True), err
    code, _, err = say("admin", "quota", "remove", "--yes", "ann", "--band", "batch")
    assert (code, "ann has no quota in batch" in err) == (1, True)
