"""The folder of a local cell: who may ask, what the daemons read, where all is kept; made here, and locked.

A folder is made once and its files are then the user's: only files that are not there are written, so
what somebody changed stays. Running what is in it is the work of ``daemons``.
"""

import fcntl
import os
import re
import shutil
import socket
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from borgish.credentials import (
    admin_token_digest,
    make_credentials,
    post_token,
    write_client_file,
    write_private,
)
from borgish.errors import Conflict, Invalid
from borgish.ids import new_token
from borgish.tls.files import AUTHORITY_FILE
from borgish.trees import remove_tree

# Two cells on one host should not hand out the same ports, so where a cell's ranges begin depends on
# its folder. All lie below 32768, from where the kernel takes ports for outgoing connections.
_PORTS_LOW, _PORTS_EACH, _RANGES = 10_000, 500, 44
_LISTEN_DEFAULT = "127.0.0.1:7400"
_MASTER_PORTS_LOW, _MASTER_PORTS = 7400, 2000
MACHINES_MAX = _RANGES

MEMBERSHIP_NAME = "membership.json"
"""What a borglet that has joined has in its state folder."""
PLACE = "cell.place"
"""Says where the folder is, by which a copy of it is known."""

_CELL, _LOCK = "cell.toml", "up.lock"

# All that a cell's folder may hold; what else lies there is not ours to remove.
_OURS = (
    _CELL,
    PLACE,
    "tokens",
    "tokens.toml",
    "tokens.taken.toml",
    "secret",
    "client.json",
    "masters",
    "machines",
    "cell.lock",
    "cell.reserve",
    "cell.checkpoints",
    _LOCK,
)
_OURS_BEGIN = ("cell.db", "borgmaster.log", "borgmaster.pid", "authority.", "master.pem")
_SECRETS_BEGIN = ("secret", "tokens", "client.json", "authority.", "master.pem")
_OF_ANY_MASTER = ("cell.db", "client.json")
_DRAFT = re.compile(r"\.(.+)\.[0-9]+")


class Daemon(msgspec.Struct, frozen=True):
    """One daemon of a local cell: its name, the module it runs, and its files."""

    name: str  # borgmaster, or the machine's name
    module: str
    config: Path
    log: Path
    pid_file: Path

    @property
    def started_file(self) -> Path:
        """What distinguishes the daemon from another program that has its pid by now."""
        return self.pid_file.with_name(self.pid_file.name + ".started")


def exists(folder: Path) -> bool:
    """Whether a cell's folder is there."""
    return (folder / _CELL).is_file()


def machine_names(folder: Path) -> list[str]:
    """Return the machines that the folder has, m1 first."""
    found = [path.parent.name for path in folder.glob("machines/*/borglet.toml")]
    return sorted(found, key=lambda name: (len(name), name))


def master_of(folder: Path) -> Daemon:
    """Return the cell's borgmaster."""
    return Daemon(
        "borgmaster",
        "borgish.master.main",
        folder / "cell.toml",
        folder / "borgmaster.log",
        folder / "borgmaster.pid",
    )


def borglets_of(folder: Path) -> list[Daemon]:
    """Return the borglets of the cell's machines."""
    return [
        Daemon(name, "borgish.borglet.main", *(home / f"borglet.{end}" for end in ("toml", "log", "pid")))
        for name in machine_names(folder)
        for home in [folder / "machines" / name]
    ]


def check_machines(count: int) -> None:
    """Raise Invalid for a number of machines that no local cell can have."""
    if not 1 <= count <= MACHINES_MAX:
        raise Invalid(
            f"--machines {count} is outside 1 to {MACHINES_MAX}",
            "More run on hosts of their own: see Run a cell on machines of your own in the documentation",
        )


def make(folder: Path, machines: int) -> list[str]:
    """Make what is missing of a cell with so many machines; return the names of the machines added."""
    check_machines(machines)
    refuse_foreign(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    if not exists(folder):
        listen = f"127.0.0.1:{_free_port(folder)}"
        _write(folder / "cell.toml", f'name = "local"\nlisten = "{listen}"\nstate = "."\n')
    _make_secrets(folder)
    if not (folder / PLACE).exists():
        _write(folder / PLACE, f"{_inode(folder)} {folder.resolve()}\n")
    old = machine_names(folder)
    wanted = [f"m{number}" for number in range(1, machines + 1)]
    added = [name for name in wanted if name not in old]
    for name in added:
        _make_machine(folder, name, max(machines, len(old)))
    for name in machine_names(folder):
        if not has_joined(folder, name):
            invite(folder, name)
    return added


def has_joined(folder: Path, name: str) -> bool:
    """Return whether a machine has joined and knows of it."""
    return (folder / "machines" / name / "state" / MEMBERSHIP_NAME).exists()


def invite(folder: Path, name: str) -> None:
    """Let a machine in that has not joined yet, has lost its state folder, or was removed from the cell."""
    token = new_token()
    post_token(folder, token, name, "join", name)
    write_private(folder / "machines" / name / "join.token", token + "\n")


def purge(folder: Path) -> list[str]:
    """Remove a cell's files, and its folder when nothing else is in it; return what was left there.

    Secrets go first. Raises Conflict for what cannot be removed: then all else is gone but for what makes it
    a cell, so that the next purge goes on.
    """
    ours = list(filter(_is_ours, folder.iterdir()))
    ours.sort(key=lambda path: not _name_of(path).startswith(_SECRETS_BEGIN))
    last = [folder / _CELL, folder / _LOCK]
    for paths in ([path for path in ours if path not in last], last):
        stays = [why for path in paths if (why := remove_tree(path))]
        if stays:
            raise Conflict(
                f"{stays[0].filename} cannot be removed: {(stays[0].strerror or '').lower()}",
                "What else can be removed is gone. See to this as its owner or as root, and unmount what is "
                "mounted there: then `borgctl down --purge` removes the rest",
            )
    left = sorted(path.name for path in folder.iterdir())
    if not left:
        folder.rmdir()
    return left


def initialised(folder: Path) -> bool:
    """Whether ``borgctl cell init`` made the cell: its daemons are not ours."""
    return (folder / AUTHORITY_FILE).exists()


def refuse_initialised(folder: Path) -> None:
    """Raise Conflict for a cell that ``borgctl cell init`` made: its daemons are not started from here."""
    if initialised(folder):
        raise Conflict(
            f"{folder} has a cell that `borgctl cell init` made: its machines are hosts of their own",
            f"Start its master with `borgmaster --config {folder / 'cell.toml'}`, or name another folder",
        )


def refuse_copy(folder: Path) -> None:
    """Raise Conflict for a copy of a cell's folder: the processes that its files name are the original's."""
    try:
        inode, _, path = (folder / PLACE).read_text().strip().partition(" ")
    except (OSError, UnicodeDecodeError):
        return
    if path != str(folder.resolve()) and inode != _inode(folder):
        raise Conflict(
            f"{folder} is a copy of the cell in {path}: the daemons and tasks in its files are that one's",
            f"Name the original's folder. If that is gone and nothing of it runs, remove {folder / PLACE}",
        )


def _inode(folder: Path) -> str:
    found = folder.stat()
    return f"{found.st_dev}:{found.st_ino}"


def refuse_foreign(folder: Path) -> None:
    """Raise Conflict for what is not a local cell: a borgmaster's own state, a copy, or other things."""
    if exists(folder):
        refuse_initialised(folder)
        refuse_copy(folder)
        return
    if _has_any_master(folder):
        raise Conflict(
            f"{folder} belongs to a borgmaster that `borgctl up` did not start",
            "Stop and start that one yourself, or name another folder for a cell of its own",
        )
    if folder.is_dir() and not is_ours(folder):
        raise Conflict(
            f"{folder} is neither a cell nor empty", "Name an empty or a new folder, as in --dir ./.borgish"
        )


def is_ours(folder: Path) -> bool:
    """Whether nothing foreign is in it: empty, or what an interrupted ``up`` left."""
    return all(map(_is_ours, folder.iterdir()))


def is_rest(folder: Path) -> bool:
    """Whether it has what an interrupted ``up`` or purge left, and nothing else."""
    return (folder / _LOCK).is_file() and not _has_any_master(folder) and is_ours(folder)


def _is_ours(path: Path) -> bool:
    name = _name_of(path)
    return name in _OURS or name.startswith(_OURS_BEGIN)


def _name_of(path: Path) -> str:
    """Return the name of a file, also of one that a death left as a draft: .tokens.toml.4711."""
    draft = _DRAFT.fullmatch(path.name)
    return draft[1] if draft else path.name


def _has_any_master(folder: Path) -> bool:
    return any((folder / name).exists() for name in _OF_ANY_MASTER)


def _make_secrets(folder: Path) -> None:
    """Make what clients need before the master, which makes the same, is there."""
    make_credentials(folder)
    admin_token_digest(folder)
    if not (folder / "client.json").exists():
        write_client_file(folder, _url(folder))


def _url(folder: Path) -> str:
    """Return the address of the master, as its file says."""
    path = folder / "cell.toml"
    try:
        settings = tomllib.loads(path.read_text("utf-8"))
    except ValueError as error:  # not UTF-8, or not TOML
        raise Invalid(f"{path}: {error}", "Correct it; configs/cell.toml shows every key") from None
    scheme = "https" if "tls" in settings else "http"
    return f"{scheme}://{settings.get('listen', _LISTEN_DEFAULT)}"


def _make_machine(folder: Path, name: str, machines: int) -> None:
    home = folder / "machines" / name
    cpu_millis, ram_mib, disk_mib = share_of_host(folder, machines)
    low = ports_low(folder, int(name[1:]))
    for path in (home.parent, home):  # one by one: mkdir gives its mode to the last only
        path.mkdir(mode=0o700, exist_ok=True)
    _write(
        home / "borglet.toml",
        f'machine = "{name}"\n'
        f'listen = "127.0.0.1:0"\n'
        f'master = "{_url(folder)}"\n'
        f'join_token_file = "join.token"\n'
        f'state = "state"\n'
        f'ports = "{low}-{low + _PORTS_EACH - 1}"\n'
        f"\n# A share of this host, which the cell's machines have in common.\n"
        f'[capacity]\ncpu = "{cpu_millis}m"\nram = "{ram_mib}MiB"\ndisk = "{disk_mib}MiB"\n',
    )


def ports_low(folder: Path, number: int) -> int:
    """Return the first port of machine ``number`` (from 1); ranges of one cell never overlap."""
    begin = zlib.crc32(os.fsencode(folder))
    return _PORTS_LOW + (begin + number - 1) % _RANGES * _PORTS_EACH


def share_of_host(folder: Path, machines: int) -> tuple[int, int, int]:
    """Return what one of so many machines has of this host: cpu in millis, ram and disk in MiB."""
    ram_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2
    disk_mib = shutil.disk_usage(folder).free // 1024**2
    cpu_millis = len(os.sched_getaffinity(0)) * 1000
    return max(1, cpu_millis // machines), max(1, ram_mib // machines), max(1, disk_mib // machines)


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this host now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port(folder: Path) -> int:
    """Return a port that nobody listens on, the same for one folder where possible."""
    begin = zlib.crc32(os.fsencode(folder))
    for step in range(_MASTER_PORTS):
        port = _MASTER_PORTS_LOW + (begin + step) % _MASTER_PORTS
        if is_free(port):
            return port
    raise Conflict(f"no port from {_MASTER_PORTS_LOW} on is free", "Stop a program that listens there")


def _write(path: Path, text: str) -> None:
    """Write a file for its user only, if it is not there yet."""
    if not path.exists():
        write_private(path, text)


@contextmanager
def alone(folder: Path, *, make: bool) -> Iterator[None]:
    """Hold the cell's lock: one ``up`` or ``down`` at a time. ``make`` makes the folder where it is missing.

    Raises Conflict when another has it.
    """
    if make:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            reason = "there is a file of that name" if folder.is_file() else (error.strerror or "").lower()
            raise Conflict(
                f"{folder} cannot be the cell's folder: {reason}",
                "Name another with --dir or BORGISH_DIR; `borgctl up` makes it",
            ) from error
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"another `borgctl up` or `down` is running on {folder}", "Wait for it to end, then try again"
            ) from None
        yield
    finally:
        os.close(handle)
