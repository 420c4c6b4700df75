"""``borgmaster``: the daemon that manages a cell."""

import argparse
import gc
import logging
import os
import resource
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import borgish
from borgish.credentials import make_credentials
from borgish.errors import BorgishError, StoreDamaged, UnsafeConfiguration
from borgish.failpoints import arm
from borgish.master.older import FLAG
from borgish.master.settings import Settings, read_settings

if TYPE_CHECKING:
    from borgish.store.base import Store

log = logging.getLogger("borgmaster")
NEWEST = "newest"
"""What to recover from, when nothing is named."""


def main() -> None:
    """Run until a signal asks to stop; the exit code says how it ended (see ``errors``)."""
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("apscheduler", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of what any stranger sends
    settings: Settings | None = None
    try:
        if armed := arm(os.environ):
            log.warning("this borgmaster is to die at failpoint %s, as its environment says", armed)
        settings = read_settings(arguments.config)
        if arguments.db:
            settings = msgspec.structs.replace(settings, db=arguments.db)
        if arguments.recover:
            _recover(settings, arguments.recover)
        else:
            _run(settings, wait=arguments.standby, take_over=arguments.take_over_from_older_store)
    except StoreDamaged as error:
        _say(error)
        if settings is not None and not arguments.recover:
            _say_way_out(settings, arguments)
        sys.exit(error.exit_code)
    except BorgishError as error:
        _say(error)
        sys.exit(error.exit_code)


def _say(error: BorgishError) -> None:
    log.error("%s", error.message)
    if error.hint:
        log.error("%s", error.hint)


def _recover(settings: Settings, wanted: str) -> None:
    from borgish.master.recover import recover

    _prepare(settings.folder)
    recover(settings, "" if wanted == NEWEST else wanted)


def _say_way_out(settings: Settings, arguments: argparse.Namespace) -> None:
    from borgish.master.recover import way_out

    command = ["borgmaster", "--config", str(arguments.config.resolve())]
    if arguments.db:
        from sqlalchemy import make_url

        command += ["--db", make_url(arguments.db).render_as_string(hide_password=True)]
    for line in way_out(settings, command):
        log.error("%s", line)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="borgmaster", description="Manage a cell of machines.")
    parser.add_argument(
        "--config",
        type=Path,
        default=Path("configs/cell.toml"),
        metavar="FILE",
        help="the cell's file (%(default)s)",
    )
    parser.add_argument("--db", default="", metavar="URL", help="a database URL instead of the file's")
    parser.add_argument(
        "--standby", action="store_true", help="wait while another borgmaster holds the database"
    )
    parser.add_argument(
        "--recover",
        nargs="?",
        const=NEWEST,
        default="",
        metavar="CHECKPOINT",
        help="bring a damaged database back from its newest good checkpoint, or from that at a position or "
        "in a file; say what is lost, and end",
    )
    parser.add_argument(
        FLAG,
        action="store_true",
        help="go on from a database that is older than what the machines have seen (exit code 73)",
    )
    parser.add_argument("--version", action="version", version=f"borgmaster {borgish.__version__}")
    return parser.parse_args()


def _run(settings: Settings, *, wait: bool, take_over: bool) -> None:
    from borgish.store.open import open_store

    _prepare(settings.folder)
    if wait:
        log.info("standby: serves as soon as no other borgmaster holds the database")
    store = open_store(
        settings.db_url,
        settings.name,
        lock_path=settings.folder / "cell.lock",
        wait=wait,
        keep=settings.checkpoints.keep,
    )
    try:
        _serve(settings, store, take_over=take_over)
    finally:
        store.close()  # also when the daemon did not come to be


def _serve(settings: Settings, store: "Store", *, take_over: bool) -> None:
    # Only now is this folder ours: before, clients would be sent here from a master that goes on.
    credentials = make_credentials(settings.folder, _url(settings), settings.tls.ca if settings.tls else "")
    import uvloop

    from borgish.master.daemon import open_daemon

    async def serve() -> None:
        daemon = await open_daemon(settings, store, credentials, take_over=take_over)
        # What was loaded stays: a full collection need not walk 200,000 tasks each time.
        gc.collect()
        gc.freeze()
        try:
            await daemon.run()
        finally:
            daemon.close()

    uvloop.run(serve())


def _url(settings: Settings) -> str:
    """Return where clients on this host find us; who listens everywhere is found by the host's name."""
    everywhere = settings.host in ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
    where = f"{socket.gethostname()}:{settings.port}" if everywhere else settings.listen
    return f"{'https' if settings.tls else 'http'}://{where}"


def _prepare(folder: Path) -> None:
    """Make the state folder, only for us, and allow as many connections as we may."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnsafeConfiguration(
            f"{folder}: {error.strerror}", "give `state` a folder we may write"
        ) from None
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
