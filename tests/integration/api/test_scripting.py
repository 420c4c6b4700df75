"""The clients for scripts, before one API: what one answers the other answers, errors too."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import borgish
from borgish import AsyncClient, Client
from borgish.errors import BorgishError, Forbidden, Invalid, NotFound, Unauthenticated, Unreachable
from borgish.scripting import calls
from borgish.wire.api import Accepted, JobDetail, JobView, MachineView, StatusView, TaskView
from tests.cells import ROOT
from tests.integration.api.fakes import PATIENCE_SECONDS, RunningApi

JOB = "name: new\nuser: ann\nrun: [serve]\nresources: {cpu: 1m, ram: 4MiB}\n"


def waited(client: Client, method: str, *words: Any, **named: Any) -> Any:
    """Return what a method gives, all of it, or the error that it raises."""
    try:
        found = getattr(client, method)(*words, **named)
        return b"".join(found) if isinstance(found, Iterator) else found
    except (BorgishError, TimeoutError) as error:
        return error


def awaited(make: Any, method: str, *words: Any, **named: Any) -> Any:
    """Return the same of a client on asyncio, in a loop of its own."""

    async def work() -> Any:
        async with make() as client:
            try:
                found = getattr(client, method)(*words, **named)
                return (
                    b"".join([it async for it in found]) if isinstance(found, AsyncIterator) else await found
                )
            except (BorgishError, TimeoutError) as error:
                return error

    return asyncio.run(work())


def both(api: RunningApi, method: str, *words: Any, token: str = "bgt_admin", **named: Any) -> Any:
    """Return what both clients give, which has to be the same."""
    url = api.serving.url
    with Client(url, token, timeout_seconds=PATIENCE_SECONDS) as client:
        one = waited(client, method, *words, **named)
    other = awaited(
        lambda: AsyncClient(url, token, timeout_seconds=PATIENCE_SECONDS), method, *words, **named
    )
    if isinstance(one, BorgishError | TimeoutError):
        assert (type(one), str(one)) == (type(other), str(other))
        assert getattr(one, "hint", "") == getattr(other, "hint", "")
    elif isinstance(one, StatusView):
        assert one.cell == other.cell
    elif isinstance(one, Accepted):
        assert type(other) is Accepted
    else:
        assert one == other
    return one


@pytest.mark.parametrize(
    ("method", "words", "kind"),
    [
        ("status", (), StatusView),
        ("jobs", (), list),
        ("job", ("ann/web",), JobDetail),
        ("tasks", (), list),
        ("tasks", ("ann/web",), list),
        ("task", ("ann/web/0",), TaskView),
        ("machines", (), list),
        ("events", (), list),
        ("logs", ("ann/web/0",), bytes),
        ("kill", ("ann/web",), Accepted),
        ("restart", ("ann/web", (0,)), Accepted),
        ("scale", ("ann/web", 5), Accepted),
        ("submit", (JOB,), Accepted),
    ],
)
def test_both_answer_the_same(api: RunningApi, method: str, words: tuple[Any, ...], kind: type) -> None:
    assert isinstance(both(api, method, *words), kind)


def test_lists_are_whole_and_of_the_kind_that_is_said(api: RunningApi) -> None:
    jobs = both(api, "jobs")
    assert jobs
    assert all(isinstance(each, JobView) for each in jobs)
    assert all(isinstance(each, MachineView) for each in both(api, "machines"))
    tasks = both(api, "tasks", "ann/web", state="running")
    assert {each.job for each in tasks} == {"ann/web"}
    assert both(api, "logs", "ann/web/0", tail=5) == b"one\n\x1b[31mtwo\xff\n"
    assert [call[-1].tail for call in api.master.log_calls] == [5, 5]


@pytest.mark.parametrize(
    ("method", "words", "token", "error"),
    [
        ("job", ("ann/nosuch",), "bgt_admin", NotFound),
        ("task", ("ann/web/99",), "bgt_admin", NotFound),
        ("job", ("web",), "bgt_admin", Invalid),
        ("task", ("web/0",), "bgt_admin", Invalid),
        ("kill", ("../x",), "bgt_admin", Invalid),
        ("wait", ("ann/web", "better"), "bgt_admin", Invalid),
        ("submit", ("name: [",), "bgt_admin", Invalid),
        ("status", (), "bgt_wrong", Unauthenticated),
        ("kill", ("ann/web",), "bgt_reader", Forbidden),
        ("logs", ("ann/web/0",), "bgt_bob", Forbidden),
    ],
)
def test_both_refuse_the_same(
    api: RunningApi, method: str, words: tuple[Any, ...], token: str, error: type[BorgishError]
) -> None:
    assert type(both(api, method, *words, token=token)) is error


def test_what_breaks_off_is_not_taken_for_whole(api: RunningApi) -> None:
    api.master.log_break = Unreachable("m1 went away")
    url = api.serving.url
    assert type(waited(Client(url, "bgt_admin"), "logs", "ann/web/0")) is Unreachable
    assert type(awaited(lambda: AsyncClient(url, "bgt_admin"), "logs", "ann/web/0")) is Unreachable


def test_nobody_answers() -> None:
    url = "http://127.0.0.1:1"
    for found in (
        waited(Client(url, "bgt_x"), "status"),
        awaited(lambda: AsyncClient(url, "bgt_x"), "status"),
    ):
        assert isinstance(found, Unreachable)
        assert f"{url} cannot be reached" in found.message


@pytest.mark.parametrize("url", ["http://192.0.2.1:7400", "ftp://x"])
def test_neither_sends_a_token_in_the_clear(url: str) -> None:
    for found in (
        waited(Client(url, "bgt_x"), "status"),
        awaited(lambda: AsyncClient(url, "bgt_x"), "status"),
    ):
        assert isinstance(found, Invalid)


def test_both_find_the_one_that_answers(api: RunningApi) -> None:
    urls = f"http://127.0.0.1:1,{api.serving.url}"
    with Client(urls, "bgt_admin") as client:
        one = client.jobs()
    assert awaited(lambda: AsyncClient(urls, "bgt_admin"), "jobs") == one


def test_a_wait_ends_when_it_is_so_or_its_time_is_over(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "LOOK_SECONDS", 0.001)
    over = both(api, "wait", "ann/web", "dead", timeout_seconds=0.01)
    assert isinstance(over, TimeoutError)
    assert "not dead after 0.01 s" in str(over)


def test_both_are_told_what_happens(api: RunningApi) -> None:
    url = api.serving.url

    async def first() -> Any:
        async with AsyncClient(url, "bgt_admin", timeout_seconds=PATIENCE_SECONDS) as client:
            return await anext(client.watch("summary"))

    one = next(Client(url, "bgt_admin", timeout_seconds=PATIENCE_SECONDS).watch("summary"))
    other = asyncio.run(first())
    assert one.kind == other.kind == "summary"


def test_importing_borgish_imports_nothing() -> None:
    script = (
        "import sys; before = set(sys.modules); import borgish; assert borgish.__version__;"
        "print(*[m for m in set(sys.modules) - before if m.startswith('borgish.')]);"
        "borgish.Client; assert 'httpx' not in sys.modules; borgish.AsyncClient"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
    with pytest.raises(AttributeError, match="has no attribute 'Clinet'"):
        _ = borgish.Clinet


def test_without_httpx_the_extra_is_named() -> None:
    script = "import sys; sys.modules['httpx'] = None; from borgish import AsyncClient"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60)
    assert "AsyncClient needs httpx: install borgish[async]" in done.stderr


def test_the_cell_that_borgctl_means_is_found(
    api: RunningApi, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("bgt_admin\n")
    monkeypatch.setenv("BORGISH_MASTER", api.serving.url)
    monkeypatch.setenv("BORGISH_TOKEN_FILE", str(tmp_path / "token"))
    assert Client().jobs()
    monkeypatch.delenv("BORGISH_MASTER")
    (tmp_path / "client.json").write_text(f'{{"url": "{api.serving.url}", "token_file": "token"}}')
    assert Client(folder=tmp_path).jobs()
    with pytest.raises(Unreachable):
        Client(folder=tmp_path / "nowhere")
