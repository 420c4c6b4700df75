"""``borgctl port-forward``: a port here that leads to a port of a task, through the borgmaster.

Each connection is carried as the input and output of a command beside a task is (``task_exec``): what comes
from the program is one answer, what goes to it are requests.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import NowOnly
from borgish.cli.screen import print_err, print_out
from borgish.cli.session import Session, session_of, single
from borgish.errors import BorgishError, Conflict, Invalid, NotFound
from borgish.text import safe
from borgish.wire.api import TaskView

if TYPE_CHECKING:
    from borgish.client import Client

port_forward_app = single()

HOST = "127.0.0.1"
CONNECTIONS_MAX = 32
PORT_MAX = 65535


@port_forward_app.command("port-forward", no_args_is_help=True)
def port_forward(
    context: typer.Context,
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="user/job/index, or job/index where unique.", autocompletion=complete.tasks
        ),
    ],
    port: Annotated[
        str,
        typer.Argument(
            metavar="[LOCAL:]PORT",
            help="Name of a port of the task. LOCAL: the port here; 0, and without it: one that is free.",
        ),
    ],
    _at: NowOnly = "",
) -> None:
    """Reach a port of a task from here.

    It is carried through the borgmaster. Listens on 127.0.0.1 until Ctrl-C, and prints where. Each connection
    goes to the task as it is then, so it may be restarted or move meanwhile. At most 32 connections are open
    at a time. It is for the owner of the job and for admins, and the audit log says each.
    """
    local, name = split_port(port)
    session = session_of(context)
    client = session.client()
    view = _task(client, task)
    if name not in view.ports:
        has = f"Its ports are {', '.join(view.ports)}" if view.ports else "It has none now"
        raise NotFound(f"{view.name} has no port '{name}'", has)
    client.close()
    with _listening(local) as listener:
        where = f"{HOST}:{listener.getsockname()[1]}"
        print_out(f"{where} leads to port {safe(name)} of {safe(view.name)}; Ctrl-C ends it")
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        _serve(listener, session, view.name, name)


def _listening(port: int) -> socket.socket:
    """Listen on a port of this host, 0: one that is free. Raises Conflict where that cannot be."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise Conflict(
            f"cannot listen on {HOST}:{port}: {os.strerror(error.errno or 0).lower()}",
            "Give another port here, as in 8080:http, or none for one that is free",
        ) from error


def split_port(text: str) -> tuple[int, str]:
    """Read ``8080:http`` as 8080 and http; without a number it is 0. Raises Invalid."""
    local, colon, name = text.rpartition(":")
    if not name or (colon and not (local.isascii() and local.isdecimal() and int(local) <= PORT_MAX)):
        raise Invalid(
            f"'{text}' is not [LOCAL:]PORT",
            "Write the name of a port, like http, or 8080:http for port 8080 here",
        )
    return int(local or 0), name


def _task(client: "Client", task: str) -> TaskView:
    from borgish.cli.lookup import find_task
    from borgish.client import quoted
    from borgish.vocabulary import task_name

    return client.get(quoted("tasks", *task_name(*find_task(client, task)).split("/")), None, TaskView)


def _serve(listener: socket.socket, session: Session, task: str, port: str) -> None:
    places = threading.BoundedSemaphore(CONNECTIONS_MAX)
    while True:
        places.acquire()
        connection, _ = listener.accept()

        def carry(connection: socket.socket = connection) -> None:
            try:
                with connection:
                    _carry(connection, session.client(), task, port)
            except (BorgishError, OSError) as error:
                print_err(f"a connection ended: {getattr(error, 'message', error)}")
            finally:
                places.release()

        threading.Thread(target=carry, name="connection", daemon=True).start()


def _carry(connection: socket.socket, client: "Client", task: str, port: str) -> None:
    from borgish.cli.commands.task_exec import SILENCE_SECONDS, Running
    from borgish.client import quoted
    from borgish.wire.api_commands import ForwardCall

    def write(pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            connection.sendall(piece)
        with suppress(OSError):  # it is gone already
            connection.shutdown(socket.SHUT_WR)

    path = f"{quoted('tasks', *task.split('/'))}/forward"
    call = ForwardCall(port, silence_seconds=SILENCE_SECONDS)
    running = Running(client, path, f"{path}/stdin", call, with_input=True)
    running.converse(connection.fileno(), write)
