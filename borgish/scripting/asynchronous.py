"""The client for scripts on asyncio: ``from borgish import AsyncClient``. It is ``Client``, awaited."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, TypeVar

import msgspec

try:
    import httpx
except ImportError as missing:
    raise ImportError("AsyncClient needs httpx: install borgish[async]") from missing

from borgish.client import (
    WATCH_SILENCE_SECONDS_MAX,
    Message,
    Params,
    expect_safe,
    messages_in,
    query_of,
    refusal,
    until_gone,
)
from borgish.errors import BorgishError, Unreachable
from borgish.ids import new_request_id
from borgish.masters import Masters, NotAnswering, Search, Silent, Untrusted
from borgish.scripting import TIMEOUT_SECONDS, calls, found_client, log_params
from borgish.scripting.calls import Call, Course
from borgish.tls.contexts import master_of
from borgish.wire.api import Accepted, EventView, JobDetail, JobView, MachineView, StatusView, TaskView

T = TypeVar("T")


class AsyncClient:
    """A cell, for a script on asyncio; methods and errors are those of ``borgish.Client``. Any number of its
    calls may be under way at a time."""

    def __init__(
        self,
        url: str = "",
        token: str = "",
        ca: str = "",
        *,
        folder: str | os.PathLike[str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """The arguments are those of ``borgish.Client``."""
        found = found_client(url, token, ca, folder, timeout_seconds)
        self._masters = Masters(found.urls)
        self._seconds = timeout_seconds
        tls = found.tls
        # One that the cell's own authority signs is known by the name of its masters, whatever its address.
        self._extensions = {"sni_hostname": name} if tls and (name := master_of(tls)) else {}
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {found.token}"},
            verify=tls or False,  # without it there is no TLS to verify: http is for loopback alone
            timeout=timeout_seconds,
            trust_env=False,
        )

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections; nothing can be asked afterwards."""
        await self._http.aclose()

    async def status(self) -> StatusView:
        """See ``Client.status``."""
        return await self._do(calls.status())

    async def jobs(self) -> list[JobView]:
        """See ``Client.jobs``."""
        return await self._do(calls.jobs())

    async def job(self, name: str) -> JobDetail:
        """See ``Client.job``."""
        return await self._do(calls.job(name))

    async def tasks(self, job: str = "", *, machine: str = "", state: str = "") -> list[TaskView]:
        """See ``Client.tasks``."""
        return await self._do(calls.tasks(job, machine, state))

    async def task(self, name: str) -> TaskView:
        """See ``Client.task``."""
        return await self._do(calls.task(name))

    async def machines(self) -> list[MachineView]:
        """See ``Client.machines``."""
        return await self._do(calls.machines())

    async def events(
        self, job: str = "", *, task: str = "", after: int = 0, limit: int = 100
    ) -> list[EventView]:
        """See ``Client.events``."""
        return await self._do(calls.events(job, task, after, limit))

    async def submit(self, text: str | bytes, *, user: str = "") -> Accepted:
        """See ``Client.submit``."""
        return await self._do(calls.submit(text, user))

    async def kill(
        self, job: str, indexes: tuple[int, ...] | None = None, *, max_affected: int | None = None
    ) -> Accepted:
        """See ``Client.kill``."""
        return await self._do(calls.kill(job, indexes, max_affected))

    async def restart(self, job: str, indexes: tuple[int, ...] | None = None) -> Accepted:
        """See ``Client.restart``."""
        return await self._do(calls.restart(job, indexes))

    async def scale(self, job: str, tasks: int, *, max_affected: int | None = None) -> Accepted:
        """See ``Client.scale``."""
        return await self._do(calls.scale(job, tasks, max_affected))

    async def wait(self, job: str, until: str = "up", *, timeout_seconds: float = 60.0) -> JobDetail:
        """See ``Client.wait``."""
        return await self._do(calls.wait(job, until, timeout_seconds))

    async def watch(
        self, kinds: str = "event", *, job: str = "", last_id: str = ""
    ) -> AsyncIterator[Message]:
        """See ``Client.watch``."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        rest = b""
        params: Params = {"kinds": kinds, "job": job}
        async for piece in self._stream("/v1/watch", params, headers, WATCH_SILENCE_SECONDS_MAX):
            whole, mark, rest = (rest + piece).rpartition(b"\n\n")
            for message in until_gone(messages_in(iter([whole + mark]))):
                yield message

    async def logs(
        self, task: str, *, follow: bool = False, tail: int = 0, previous: bool = False, program: str = ""
    ) -> AsyncIterator[bytes]:
        """See ``Client.logs``."""
        path = f"{calls.task_path(task)}/logs"
        params = log_params(follow=follow, tail=tail, previous=previous, program=program)
        async for piece in self._stream(path, params, {}, None):
            yield piece

    async def _do(self, course: Course[T]) -> T:
        answer: object = None
        while True:
            try:
                step = course.send(answer)
            except StopIteration as done:
                value: T = done.value
                return value
            if isinstance(step, Call):
                answer = await self._ask(step)
            else:
                await asyncio.sleep(step.seconds)
                answer = None

    async def _ask(self, call: Call) -> object:
        body = call.body if isinstance(call.body, bytes) else b"" if call.body is None else None
        headers = {}
        if call.method != "GET":
            headers = {"Content-Type": call.content_type, "Idempotency-Key": new_request_id()}
        request = {
            "params": query_of(call.params),
            "content": msgspec.json.encode(call.body) if body is None else body or None,
            "headers": headers,
        }
        response = await self._from_leader(call.method, call.path, request)
        content = await response.aread()
        try:
            return msgspec.json.decode(content, type=call.answer)
        except msgspec.MsgspecError as error:
            raise BorgishError(f"the master's answer cannot be decoded: {error}") from error

    async def _stream(
        self, path: str, params: Params, headers: dict[str, str], silence_seconds: float | None
    ) -> AsyncIterator[bytes]:
        timeout = httpx.Timeout(self._seconds, read=silence_seconds)
        request = {"params": query_of(params), "headers": headers, "timeout": timeout}
        response = await self._from_leader("GET", path, request)
        try:
            async for piece in response.aiter_raw():
                yield piece
        except httpx.HTTPError as error:
            raise Unreachable(f"{self._masters.url}: the stream broke off: {error}") from error
        finally:
            await response.aclose()

    async def _from_leader(self, method: str, path: str, request: dict[str, Any]) -> httpx.Response:
        """Return the good answer of the master that leads, its body not read yet."""
        search = Search(self._masters)
        while True:
            try:
                return await self._once(method, path, request)
            except BorgishError as error:
                await asyncio.sleep(search.after(error))

    async def _find_alive(self, url: str) -> None:
        try:
            timeout_seconds = self._masters.patience(self._seconds)
            await self._http.get(f"{url}/v1/health", timeout=timeout_seconds, extensions=self._extensions)
        except httpx.TimeoutException as error:
            raise Silent(f"{url} did not answer in time") from error
        except httpx.HTTPError:
            pass  # the request itself is answered likewise

    async def _once(self, method: str, path: str, request: dict[str, Any]) -> httpx.Response:
        url = self._masters.url
        expect_safe(url)
        if method == "GET":
            request = {"timeout": self._masters.patience(self._seconds)} | request
        elif self._masters.are_several:  # see ``client.Client._find_alive``
            await self._find_alive(url)
        try:
            made = self._http.build_request(method, f"{url}{path}", extensions=self._extensions, **request)
            response = await self._http.send(made, stream=True)
            if response.status_code in range(200, 300):
                return response
            body = await response.aread()
        except httpx.ConnectError as error:
            if reason := _distrust(error):
                raise Untrusted(f"{url} cannot be trusted: {reason}", "Which authority signs it?") from error
            raise NotAnswering(f"{url} cannot be reached: {error}") from error
        except httpx.TimeoutException as error:
            message = f"{url} did not answer in time"
            if method == "GET":
                raise Silent(message) from error
            raise Unreachable(message, "It may have been carried out: check before you try again") from error
        except httpx.HTTPError as error:
            raise Unreachable(f"{url}: the connection broke: {error}") from error
        raise refusal(url, response.status_code, response.headers, body)


def _distrust(error: BaseException | None) -> str:
    """Return what is wrong with the TLS of a connection that could not be made; "" for nothing."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return str(getattr(error, "verify_message", "") or error.reason or error).lower()
        error = error.__cause__ or error.__context__
    return ""
