"""``borglet join URL TOKEN``: gets an invited machine its certificate and its file, before it runs.

The authority of the cell is compared with the token before the token is sent. Cut off, it is run again with
the same token: the key is kept, so what it asks for is the same. A machine that was away for longer than its
certificate lives comes back like this, too, with the file that it has; and one that had an operator's files
under ``[tls]``, or was called in clear, is carried over so: its file is written without them at last.
"""

import argparse
import re
import socket
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from borgish.addresses import WILDCARDS, is_loopback, several
from borgish.borglet import facts
from borgish.borglet.joining.identity import Identity
from borgish.borglet.joining.join import HttpJoin, Redirected
from borgish.borglet.settings import File, Settings, checked, read
from borgish.borglet.state_folder import FolderLock, Membership, membership_in
from borgish.clock import SystemClock
from borgish.configuration import without_table
from borgish.credentials import drop_drafts, write_private
from borgish.errors import Conflict, Unreachable, UnsafeConfiguration
from borgish.ids import new_instance
from borgish.join_token import JoinToken, parse
from borgish.tls.pinning import fetch_authority
from borgish.vocabulary import NAME_PATTERN
from borgish.wire.link import JoinReply, JoinRequest

FOLDER = "/var/lib/borglet"
PORT = 7401
REDIRECTS_MAX = 5
FROM_STDIN = "-"

T = TypeVar("T")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "url", metavar="URL[,URL...]", help="the borgmasters' addresses, as the invitation prints them"
    )
    parser.add_argument("token", metavar="TOKEN", help="the invitation's token; - reads it from stdin")
    parser.add_argument("--name", default="", metavar="M", help="the machine's name (this host's)")
    parser.add_argument(
        "--dir", type=Path, default=Path(FOLDER), metavar="DIR", help="the machine's folder (%(default)s)"
    )
    parser.add_argument(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help=f"where its borglet listens for the master (every address, port {PORT} if it is free)",
    )
    parser.add_argument("--no-start", action="store_true", help="join, and leave it to others to start it")


def join(options: argparse.Namespace) -> Path:
    """Join the cell; return the file to run by. Raises BorgishError, and OSError for the folder."""
    token = parse(sys.stdin.readline() if options.token == FROM_STDIN else options.token)
    urls, folder = several(options.url) or ("",), Path(options.dir).absolute()
    path = folder / "borglet.toml"
    there = read(path) if path.exists() else None
    if there is not None:
        _expect(path, there, urls, options.name)
    authority = b""
    if token.authority:
        authority = _first(urls, lambda url: fetch_authority(url, token.authority))
    if there is None:
        file = _file(urls, options.name, options.listen)
        checked(path, file, invited=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, _written(file))
    settings = checked(path, there or file, invited=True)
    settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FolderLock(settings.state)
    try:
        for name in ("authority", "machine"):
            drop_drafts(settings.state / name)
        _become(settings, urls, token, authority)
        if there is not None and authority:
            carry_over(path, there, urls)
    finally:
        lock.release()
    return path


def _first(urls: Sequence[str], ask: Callable[[str], T]) -> T:
    """Return what the first master answers that can be reached. Raises what the question does, of the last
    master where none can."""
    for url in urls[:-1]:
        with suppress(Unreachable):
            return ask(url)
    return ask(urls[-1])


def carry_over(path: Path, file: File, urls: Sequence[str]) -> None:
    """Have a machine's file say no more how it was known before. The one before is kept beside it."""
    before = file.master.split(",")
    follows = {_in_clear(url): url for url in urls}
    masters = [follows.get(each, each) for each in before]
    if file.tls is None and masters == before:
        return
    text = without_table(path, "tls")
    if masters != before:
        text = text.replace(f'"{file.master}"', f'"{",".join(masters)}"')
        if tomllib.loads(text)["master"] != ",".join(masters):
            raise UnsafeConfiguration(
                f"{path}: master is not written in one line", f"Write {','.join(masters)} there"
            )
    write_private(path.with_name(path.name + ".before"), path.read_text("utf-8"))
    write_private(path, text)


def _in_clear(url: str) -> str:
    return url.replace("https://", "http://", 1)


def _become(settings: Settings, urls: Sequence[str], token: JoinToken, authority: bytes) -> None:
    """Get the certificate, where the cell has an ``authority``, and keep what makes a machine a member."""
    membership, identity = membership_in(settings.state), None
    if authority:
        identity = Identity(settings.state, settings.machine)
        identity.trust(authority)
    reply = _asked(settings, membership, identity, urls, token)
    if identity is not None and not reply.certificate:
        raise Unreachable(
            f"the borgmaster at {' or '.join(urls)} took the machine in, and gave it no certificate",
            "Are borglet and borgmaster of the same version?",
        )
    membership.keep(reply.cell, reply.poll_token)


def _asked(
    settings: Settings,
    membership: Membership,
    identity: Identity | None,
    urls: Sequence[str],
    token: JoinToken,
) -> JoinReply:
    def request() -> JoinRequest:
        boot, measured = facts.boot_id(), facts.measure(settings)
        # Whoever starts it joins again, with the port that it has by then.
        port = settings.port or _free_port(settings.host, 0) or PORT
        tls = identity is not None
        return JoinRequest(settings.machine, settings.host, port, boot, instance, measured, tls=tls)

    # The same over all retries: one whose answer was lost is answered the same.
    instance = identity.asking if identity else new_instance()

    ask = HttpJoin(settings, membership, request, SystemClock(), identity, token.secret)

    def led_by(url: str) -> JoinReply:
        for _ in range(REDIRECTS_MAX):
            try:
                return ask.once(url)
            except Redirected as sent:
                url = sent.where
        raise Unreachable("no borgmaster of this cell leads at the moment", "Try again in a few seconds")

    return _first(urls, led_by)


def _expect(path: Path, file: File, urls: Sequence[str], name: str) -> None:
    """Raise Conflict where the folder is another machine's."""
    if name and name != file.machine:
        raise Conflict(f"{path} is machine {file.machine}'s, not {name}'s", "Name another folder with --dir")
    if not {*urls, *map(_in_clear, urls)} & set(file.master.split(",")):
        raise Conflict(
            f"{path} has master = '{file.master}', not {','.join(urls)}", "Correct it there, and try again"
        )


def _file(urls: Sequence[str], name: str, listen: str) -> File:
    return File(machine=name or _host_name(), master=",".join(urls), listen=listen or _free_address(urls[0]))


def _written(file: File) -> str:
    return (
        f'machine = "{file.machine}"\n'
        f'master = "{file.master}"\n'
        f'listen = "{file.listen}"\n'
        f'state = "{file.state}"\n'
        f'ports = "{file.ports}"\n'
    )


def _host_name() -> str:
    name = socket.gethostname().partition(".")[0].lower()
    if not re.fullmatch(NAME_PATTERN, name):
        raise UnsafeConfiguration(
            f"the name of this host, {name!r}, cannot be that of a machine", "Name it with --name"
        )
    return name


def _free_address(url: str) -> str:
    """Return where to listen, for the master to reach: loopback for one on this host."""
    host = urlsplit(url).hostname or ""
    host = "127.0.0.1" if is_loopback(host) else WILDCARDS[0]
    port = _free_port(host, PORT) or _free_port(host, 0)
    if not port:
        raise UnsafeConfiguration(f"no port of {host} is free", "Name one with --listen")
    return f"{host}:{port}"


def _free_port(host: str, wanted: int) -> int:
    """Return a port on which nobody listens now, 0 when there is none. ``wanted`` 0: any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError:
            return 0
        return int(probe.getsockname()[1])
