"""Two people and an automation change one job at the same time, over the real API: no change is lost."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from borgish.cli import borgctl
from borgish.errors import Invalid, PreconditionFailed
from borgish.wire.api import Accepted, IndexesRequest, JobDetail, QuotaRequest, QuotaView, ScaleRequest
from tests.scenario.quota.real import CoreApi

WEB = "/v1/jobs/ann/web"
JOB = b"name: web\nuser: ann\ntasks: 1\nrun: [x]\nresources: {cpu: 1m, ram: 4MiB}\n"
EACH = 15


@pytest.fixture
def api() -> Iterator[CoreApi]:
    running = CoreApi()
    running.client().post("/v1/jobs", JOB, Accepted, content_type="application/yaml")
    yield running
    running.stop()


def at_once(works: int, work: Callable[[int], None]) -> None:
    """Call it with each number at the same time; raises what one of them raised."""
    with ThreadPoolExecutor(works) as pool:
        for _ in pool.map(work, range(works), timeout=60.0):
            pass


def test_two_people_and_an_automation(api: CoreApi) -> None:
    """Each adds a task to what it sees, again and again; all of them are there in the end."""
    late: list[str] = []

    def add(number: int) -> None:
        client, done = api.client(("bgt_ann", "bgt_admin", "bgt_ann")[number]), 0
        while done < EACH:
            seen = client.get(WEB, None, JobDetail).job
            try:
                client.post(f"{WEB}/scale", ScaleRequest(seen.tasks + 1), Accepted, expected=seen.generation)
                done += 1
            except PreconditionFailed as error:
                late.append(error.message)
        client.close()

    at_once(3, add)
    assert api.master.cell.jobs["ann/web"].spec.tasks == 1 + 3 * EACH
    assert all("ann/web scaled from" in said and ", by " in said for said in late)


def test_of_twenty_who_saw_the_same_exactly_one_changes_it(api: CoreApi) -> None:
    """F103."""
    seen = api.client().get(WEB, None, JobDetail).job.generation
    late: list[str] = []

    def change(number: int) -> None:
        client = api.client("bgt_ann")
        try:
            client.post(f"{WEB}/scale", ScaleRequest(number + 2), Accepted, expected=seen)
        except PreconditionFailed as error:
            late.append(error.message)
        finally:
            client.close()

    at_once(20, change)
    tasks = api.master.cell.jobs["ann/web"].spec.tasks
    assert len(late) == 19
    assert all(f"scaled from 1 to {tasks} tasks" in said for said in late)


def test_what_was_restarted_is_not_killed_by_who_saw_it_before(api: CoreApi) -> None:
    ann, root = api.client("bgt_ann"), api.client()
    seen = ann.get(WEB, None, JobDetail).job.generation
    root.post(f"{WEB}/restart", IndexesRequest((0,)), Accepted)
    with pytest.raises(PreconditionFailed, match="1 task of ann/web restarts, by root"):
        ann.post(f"{WEB}/kill", IndexesRequest(), Accepted, expected=seen)
    now = ann.get(WEB, None, JobDetail).job.generation
    ann.post(f"{WEB}/kill", IndexesRequest(), Accepted, expected=now)
    with pytest.raises(PreconditionFailed, match="killed, by ann"):
        ann.post("/v1/jobs", JOB, Accepted, content_type="application/yaml", expected=now)


def test_a_quota_that_nobody_has_set_is_set_once(api: CoreApi) -> None:
    root, path = api.client(), "/v1/quotas/ann/batch"
    assert root.get(path, None, QuotaView).generation == 0
    root.post(path, QuotaRequest(1000, 1024**3), Accepted, expected=0)
    with pytest.raises(PreconditionFailed, match="the quota ann/batch came since you looked") as caught:
        root.post(path, QuotaRequest(2000, 1024**3), Accepted, expected=0)
    assert caught.value.hint.startswith("look again with `borgctl quota show ann --band batch`")
    set_at = root.get(path, None, QuotaView).generation
    root.post(f"{path}/delete", None, Accepted, expected=set_at)
    with pytest.raises(PreconditionFailed, match="the quota ann/batch is gone since you looked") as gone:
        root.post(path, QuotaRequest(2000, 1024**3), Accepted, expected=set_at)
    assert ", by root " in gone.value.message
    with pytest.raises(Invalid):
        root.post(path, QuotaRequest(-1, 0), Accepted, expected=0)


def test_borgctl_changes_what_was_shown_or_nothing(
    api: CoreApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "ann.token"
    token.write_text("bgt_ann\n")
    monkeypatch.setenv("BORGISH_URL", api.serving.url)

    def say(*words: object) -> tuple[int, str, str]:
        code = borgctl.run(["--token-file", str(token), *map(str, words)])
        return code, *capsys.readouterr()

    seen = api.client().get(WEB, None, JobDetail).job.generation
    assert f", generation {seen}\n" in say("job", "show", "web")[1]
    api.client().post(f"{WEB}/scale", ScaleRequest(3), Accepted)
    now = api.client().get(WEB, None, JobDetail).job.generation
    for words in (["scale", "web", 4], ["kill", "--yes", "web"], ["restart", "web", 0]):
        code, out, err = say("job", *words, "--if-generation", seen)
        assert (code, out) == (1, "")
        assert err == (
            f"error: ann/web was changed since you looked (generation {seen}, now {now}): ann/web scaled "
            "from 1 to 3 tasks, by root 0s ago\n"
            "hint: look again with `borgctl job show ann/web`, and decide anew\n"
        )
    assert say("job", "scale", "web", 4, "--if-generation", now)[0] == 0
    file = tmp_path / "web.yaml"
    file.write_bytes(JOB)
    code, _, err = say("job", "submit", "--detach", "--if-generation", 0, file)
    assert (code, "ann/web came since you looked" in err) == (1, True)
    assert say("job", "submit", "--if-generation", 0, file, file)[0] == 2
