"""``borgmaster``: the daemon that manages a cell."""

import argparse
import logging
import os
import resource
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

import borgish
from borgish.credentials import expect_private, keep_off_disk
from borgish.errors import BorgishError, Fenced, StoreDamaged, UnsafeConfiguration
from borgish.failpoints import arm
from borgish.logs import log_to_stderr
from borgish.master.host.preflight import OLDER_STORE_FLAG, TAKE_OVER_FLAG, TakeOver
from borgish.master.host.settings import Settings, read_settings, reread
from borgish.reload import Hangup
from borgish.tls.files import AUTHORITY_KEYS, MASTER_FILE

log = logging.getLogger("borgmaster")
SECRETS = ("secret", "tokens/admin.token", AUTHORITY_KEYS, MASTER_FILE)
"""What nobody else may read. The keys of the audit log and of the cell's secrets derive from the first."""
NEWEST = "newest"
"""What to recover from, when nothing is named."""


def main() -> None:
    """Run until a signal asks to stop; the exit code says how it ended (see ``errors``)."""
    hangup = Hangup()
    arguments = command_line().parse_args()
    keep_off_disk()
    os.umask(0o077)  # whatever that of who started it is
    log_to_stderr()
    for chatty in ("apscheduler", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    settings: Settings | None = None
    try:
        if armed := arm(os.environ):
            log.warning("this borgmaster is to die at failpoint %s, as its environment says", armed)
        settings = _read(arguments)
        if arguments.recover:
            _recover(settings, arguments.recover)
        else:
            _run(settings, hangup, arguments)
    except StoreDamaged as error:
        _say(error)
        if settings is not None and not arguments.recover:
            _say_way_out(settings, arguments)
        sys.exit(error.exit_code)
    except Fenced as error:
        _say(error)
        _end_now(error.exit_code)
    except BorgishError as error:
        _say(error)
        sys.exit(error.exit_code)


def _end_now(code: int) -> NoReturn:
    """End without waiting for threads: one may hang in a database that does not answer."""
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)


def _say(error: BorgishError) -> None:
    log.error("%s", error.message)
    if error.hint:
        log.error("%s", error.hint)


def _recover(settings: Settings, wanted: str) -> None:
    from borgish.master.host.recover import recover

    _prepare(settings.folder)
    recover(settings, "" if wanted == NEWEST else wanted)


def _say_way_out(settings: Settings, arguments: argparse.Namespace) -> None:
    from borgish.master.host.recover import way_out

    command = ["borgmaster", "--config", str(arguments.config.resolve())]
    if arguments.db:
        from sqlalchemy import make_url

        command += ["--db", make_url(arguments.db).render_as_string(hide_password=True)]
    for line in way_out(settings, command):
        log.error("%s", line)


def command_line() -> argparse.ArgumentParser:
    """Return what reads the command line of ``borgmaster``."""
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
        "--standby",
        action="store_true",
        help="stand by while another borgmaster leads, and lead when it is gone",
    )
    parser.add_argument(
        "--listen", default="", metavar="HOST:PORT", help="where to listen, instead of the file's"
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
        OLDER_STORE_FLAG,
        action="store_true",
        help="go on from a database that is older than what the machines have seen (exit code 73)",
    )
    parser.add_argument(
        TAKE_OVER_FLAG,
        action="store_true",
        help="lead though a borgmaster on another database leads the machines, or the cell's secret is lost "
        "(exit code 74), or machines have seen more than is stored (73)",
    )
    parser.add_argument("--version", action="version", version=f"borgmaster {borgish.__version__}")
    return parser


def _take_over(arguments: argparse.Namespace) -> TakeOver:
    if arguments.take_over:
        return TakeOver.MACHINES
    return TakeOver.OLDER_STORE if arguments.take_over_from_older_store else TakeOver.NOTHING


def _read(arguments: argparse.Namespace) -> Settings:
    """Read the cell's file; options count instead of what it says."""
    settings = read_settings(arguments.config, arguments.listen)
    return msgspec.structs.replace(settings, db=arguments.db) if arguments.db else settings


def _run(settings: Settings, hangup: Hangup, arguments: argparse.Namespace) -> None:
    _prepare(settings.folder)
    import uvloop

    from borgish.master.process import live

    def read_anew(old: Settings) -> tuple[Settings, Settings]:
        new = _read(arguments)
        return new, reread(arguments.config, old, new)

    may_wait, take_over = arguments.standby, _take_over(arguments)
    uvloop.run(live(settings, hangup, read_anew, may_wait=may_wait, take_over=take_over))


def _prepare(folder: Path) -> None:
    """Have the state folder, for us alone, and allow as many connections as we may."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        expect_private(folder, *SECRETS)
    except OSError as error:
        raise UnsafeConfiguration(
            f"{folder}: {error.strerror}", "give `state` a folder we may write"
        ) from None
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
