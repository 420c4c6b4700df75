"""A small master that streams summaries, and the dashboard in a terminal to look at them."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from borgish.wire.api import Problem, SummaryView
from tests.terminal import Terminal

PROGRAM = """
from borgish.client import Client
from borgish.dashboard import app
{before}
sys.exit(app.run(Client({url!r}, "t"), once={once}))
"""


class StreamingMaster:
    """Answers ``/v1/summary`` with ``view`` and streams what is ``told``; None breaks the stream. It knows
    nothing else but ``answers``, by path."""

    def __init__(self, view: SummaryView) -> None:
        self.view = view
        self.answers: dict[str, bytes] = {}  # JSON
        self.url = ""
        self.away = False  # connections are closed without an answer
        self.is_awake = threading.Event()  # nothing is answered before, and connections stay open
        self.is_awake.set()
        self.told: queue.Queue[SummaryView | None] = queue.Queue()
        self.last_ids: list[str] = []
        self.asked: list[str] = []  # paths
        self._count = 0

    def tell(self, view: SummaryView) -> None:
        self.view = view
        self.told.put(view)

    def leave(self) -> None:
        self.away = True
        self.told.put(None)

    def message(self, view: SummaryView) -> bytes:
        self._count += 1
        return b"id: 3.%d\nevent: summary\ndata: %s\n\n" % (self._count, msgspec.json.encode(view))


@contextmanager
def serving(master: StreamingMaster) -> Iterator[StreamingMaster]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(master))
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    master.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield master
    finally:
        master.leave()
        master.is_awake.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(master: StreamingMaster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            master.asked.append(self.path.partition("?")[0])
            master.is_awake.wait()
            if master.away:
                return
            if self.headers.get("Authorization") != "Bearer t":
                self._send(
                    401, "application/problem+json", msgspec.json.encode(Problem("no", 401, "no token"))
                )
            elif self.path == "/v1/summary":
                self._send(200, "application/json", msgspec.json.encode(master.view))
            elif (answer := master.answers.get(self.path.partition("?")[0])) is not None:
                self._send(200, "application/json", answer)
            elif not self.path.startswith("/v1/watch"):
                self._send(
                    404, "application/problem+json", msgspec.json.encode(Problem("no", 404, "not here"))
                )
            else:
                master.last_ids.append(self.headers.get("Last-Event-ID", ""))
                self._send(200, "text/event-stream", b": alive\n\n")
                with contextlib.suppress(ConnectionError):  # its reader has gone
                    while (view := master.told.get()) is not None:
                        self.wfile.write(master.message(view))

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
            pass

    return Handler


@contextmanager
def terminal(
    url: str,
    size: tuple[int, int] = (80, 24),
    *,
    once: bool = False,
    before: str = "",
    env: dict[str, str] | None = None,
) -> Iterator[Terminal]:
    made = Terminal(PROGRAM.format(url=url, once=once, before=before), size, env or {})
    try:
        yield made
    finally:
        made.close()
