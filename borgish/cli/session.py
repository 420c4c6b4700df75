"""What commands share: how they are made, which cell is meant, how to reach its master, who is asking."""

import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from borgish.errors import BorgishError, Invalid, NotFound, Unauthenticated
from borgish.vocabulary import NAME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from borgish.bands import Bands
    from borgish.client import Client


FOLDER_NAME = ".borgish"
LOCAL = "local"
"""The name of the nearest cell on this host, which nobody has to log in to."""
ALL = "all"
"""In place of a name: every cell that somebody is logged in to."""
CHECK_SECONDS_MAX = 5.0  # reading a job file can do without what the cell would answer


def _folder(text: str) -> Path:
    """Read a folder's path. An empty one, as of a variable that is not set, is not the current folder."""
    if not text:
        raise typer.BadParameter("it is empty; . is the current folder")
    return Path(text)


DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        parser=_folder,
        metavar="PATH",
        help="The cell's folder. Default: BORGISH_DIR, else the nearest .borgish upward, else ~/.borgish.",
    ),
]

IfGeneration = Annotated[
    int | None,
    typer.Option(
        "--if-generation",
        metavar="N",
        min=0,
        help="Only if it is still of this generation, which `show` prints; else say what was changed.",
    ),
]


MaxAffected = Annotated[
    int | None,
    typer.Option(
        "--max-affected", metavar="N", min=0, help="Allow so many running tasks to be stopped by this."
    ),
]


class ReadFrom(StrEnum):
    """Who answers what only reads."""

    LEADER = "leader"
    STANDBY = "standby"


class Session(msgspec.Struct):
    """The global options of one call of borgctl."""

    folder: Path | None = None
    url: str = ""
    token_file: Path | None = None
    from_standby: bool = False
    at_least: int = 0  # the position of the journal from which on a standby's copy will do

    @property
    def cell_folder(self) -> Path:
        """The folder of the cell that is meant, absolute; it need not exist. One that was named, else the
        one that was chosen by ``login`` or ``cell use``, else the nearest local one."""
        if self._named is None and (chosen := chosen_cell()):
            return cells_folder() / chosen
        return self.local_folder

    @property
    def local_folder(self) -> Path:
        """The folder of the local cell that is meant, absolute; it need not exist."""
        found = self._named or nearest_folder(Path.cwd()) or home_folder() / FOLDER_NAME
        return Path(os.path.abspath(found))

    @property
    def _named(self) -> Path | None:
        named = os.environ.get("BORGISH_DIR")
        return self.folder or (Path(named) if named else None)

    def use(self, folder: Path | None) -> None:
        """Take ``--dir`` as given after the command, which counts more than before it."""
        if folder is not None:
            self.folder = folder

    def client(self, timeout_seconds: float = 30.0) -> "Client":
        """Return a client of the cell's master. Raises Unreachable and Unauthenticated with the way out."""
        from borgish.client import Client

        if not self.url:
            found = Client.find(self.cell_folder, timeout_seconds)
            if self.token_file is None:
                return found
            return found.with_token(read_token(self.token_file), str(self.token_file))
        token_file = self.token_file or self.cell_folder / "tokens" / "admin.token"
        ca = os.environ.get("BORGISH_CA", "")
        return Client(self.url, read_token(token_file), ca, timeout_seconds, str(token_file))

    def command_line(self, command: "Sequence[str]") -> list[str]:
        """Return how to run a command of borgctl with the same global options, in a process of its own."""
        options = [] if self.folder is None else ["--dir", str(self.folder)]
        options += ["--url", self.url] if self.url else []
        options += [] if self.token_file is None else ["--token-file", str(self.token_file)]
        return [sys.executable, "-m", "borgish.cli.borgctl", *options, *command]

    def role(self) -> str:
        """Return the role of the token; "" where nobody says."""
        from borgish.wire.api import WhoamiView

        try:
            return self.client(CHECK_SECONDS_MAX).get("/v1/whoami", None, WhoamiView).role
        except BorgishError:
            return ""

    def bands(self) -> "Bands | None":
        """Return where the cell's bands begin; None when it does not say."""
        from borgish.bands import Bands

        try:
            return self.client(CHECK_SECONDS_MAX).get("/v1/bands", None, Bands)
        except BorgishError:
            return None

    def who_asks(self) -> str:
        """Return whose jobs are meant by default: the token's user, else the login name.

        An admin's token is no user's, and a file can be checked without a master to ask.
        """
        from borgish.wire.api import WhoamiView

        try:
            whoami = self.client(CHECK_SECONDS_MAX).get("/v1/whoami", None, WhoamiView)
        except BorgishError:
            return login_name()
        return whoami.name if whoami.role == "user" else login_name()


def session_of(context: typer.Context) -> Session:
    """Return the session that the global options made."""
    session = context.find_root().obj
    return session if isinstance(session, Session) else Session()


def nearest_folder(start: Path) -> Path | None:
    """Return the nearest cell folder in ``start`` or above it."""
    for folder in (start, *start.parents):
        if (folder / FOLDER_NAME / "cell.toml").is_file():
            return folder / FOLDER_NAME
    return None


def home_folder() -> Path:
    """Return the home of who asks. Raises Invalid where there is none: no HOME and no line in /etc/passwd."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise Invalid(
            "there is no home folder, in which to look for a cell",
            "set HOME, or name the cell's folder with `--dir`",
        ) from error


def cells_folder() -> Path:
    """Return where the cells are kept that somebody is logged in to."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else home_folder() / ".config") / "borgish" / "cells"


def logged_in() -> list[str]:
    """Return the names of the cells that somebody is logged in to, in order."""
    return sorted(path.parent.name for path in cells_folder().glob("*/client.json"))


def expect_logged_in(name: str) -> None:
    """Raise NotFound, with the cells there are, where nobody is logged in to one of this name."""
    if name not in (known := logged_in()):
        from borgish.text import safe

        hint = f"Known are {', '.join(known) or 'none'}; `borgctl login URL` keeps a token for another"
        raise NotFound(f"you are not logged in to a cell '{safe(name[:63])}'", hint)


def chosen_cell() -> str:
    """Return the name of the cell that commands go to unless one is named; "" for the nearest local one."""
    if named := os.environ.get("BORGISH_CELL"):
        return named
    try:
        return (cells_folder() / "chosen").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_token(path: Path) -> str:
    """Return the token in a file."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise Unauthenticated(
            f"the token file {path} cannot be read: {str(reason).lower()}", "Name another with --token-file"
        ) from error


def login_name() -> str:
    """Return the login name, as a name in the cell."""
    import getpass

    try:
        login = getpass.getuser().lower()
    except (OSError, KeyError):  # no environment and no line in /etc/passwd
        return "user"
    name = re.sub(r"[^a-z0-9-]+", "-", login).strip("-")[:63].strip("-")
    return name if re.fullmatch(NAME_PATTERN, name) else "user"


class Noun(TyperGroup):
    """A group of commands that knows what other systems call them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names. Ends with usage, and with what was meant."""
        if (
            self.get_command(ctx, args[0]) is None
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
        ):
            from borgish.cli.words import meant_in_group, no_such_command, without_foreign_options

            meant = without_foreign_options(self, meant_in_group(args, self.commands))
            ctx.fail(no_such_command(ctx.command_path, args, self.commands, meant))
        return super().resolve_command(ctx, args)


def noun(words: str) -> typer.Typer:
    """Return a group of commands about one noun; ``words`` say what it is."""
    return typer.Typer(
        cls=Noun, help=words, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )


def single() -> typer.Typer:
    """Return the home of one command that stands by itself."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)
