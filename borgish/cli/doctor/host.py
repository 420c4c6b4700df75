"""The checks of ``borgctl doctor`` that look at this host: files, the daemons' processes, the engine.

They need no master and no right beyond those of whoever runs them; what that user may not see is told.
"""

import grp
import http.client
import json
import os
import shutil
import socket
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import closing
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from borgish.addresses import is_loopback, several
from borgish.cli.doctor.cell import connection_to, judged, judged_skew
from borgish.cli.doctor.diagnosis import BORGLET_FILE, Check, Found, Patient, fail, good, some_of, warn
from borgish.clock import SystemClock
from borgish.errors import UnsafeConfiguration
from borgish.resources import show_bytes
from borgish.text import plural
from borgish.tls.files import AUTHORITY_FILE, AUTHORITY_KEYS, MACHINE_FILE, MASTER_FILE

if TYPE_CHECKING:
    import psutil

_NOT_HERE = "no state of a cell or a machine is in this folder"
DISK_WARN_BYTES, DISK_FAIL_BYTES = 5 * 1024**3, 640 * 1024**2
"""With less than the second, borglets drop what ended tasks wrote, and masters soon refuse new work."""
STORE_BYTES_MAX = 1024**3
"""A larger database is not copied to be looked at."""
SQLITE_FIXED = (3, 51, 3)
RUNC_FIXED = {(1, 2): 8, (1, 3): 3}
"""The first patch of a line of runc with the fixes of CVE-2025-31133, 52565 and 52881; later have."""
CGROUPS_2 = Path("/sys/fs/cgroup/cgroup.controllers")
_SOCKET = "/var/run/docker.sock"
_ENGINE_SECONDS_MAX = 5.0
_LOOKS = 3
"""At the kernel's list of locks, of which a reader misses lines where it changes at the moment."""


class Process(msgspec.Struct, frozen=True):
    """A daemon of the folder that runs. ``core_bytes``: the limit of core dumps, -1 for none;
    ``addresses``: where it listens, None where whoever asks may not know."""

    name: str
    pid: int
    uid: int
    capabilities: int
    core_bytes: int
    addresses: tuple[str, ...] | None


# -- Files ------------------------------------------------------------------------------------------------


def _machine_file(folder: Path) -> dict[str, Any]:
    """Return what a machine's file says. Raises UnsafeConfiguration."""
    path = folder / BORGLET_FILE
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UnsafeConfiguration(f"{path}: {error}", "configs/borglet.toml shows every key") from None


def _states(patient: Patient) -> Iterator[tuple[str, Path]]:
    """Return the state folders that are here, with the daemon's name."""
    folder = patient.folder
    if patient.is_machine:
        yield "borglet", folder / str(_machine_file(folder).get("state", "state"))
    elif (folder / "secret").exists():
        yield "borgmaster", folder
        for path in sorted(folder.glob(f"machines/*/{BORGLET_FILE}")):
            yield path.parent.name, path.parent / str(_machine_file(path.parent).get("state", "state"))


def _own_files(patient: Patient) -> Iterator[Path]:
    """Return what is the daemons' own. What tasks wrote lies deeper, and is not looked at."""
    for _, state in _states(patient):
        for folder in (state, state / "tokens", state / "cell.checkpoints"):
            if folder.is_dir():
                yield folder
                yield from (path for path in folder.iterdir() if not path.is_dir())


def _modes(patient: Patient) -> list[Found]:
    loose = [path for path in _own_files(patient) if not path.is_symlink() and path.lstat().st_mode & 0o077]
    if loose:
        return fail(
            f"open to others: {some_of([str(path) for path in loose])}",
            f"chmod -R go= {_states_root(patient)}; what stood there for others to read counts as known",
        )
    return good("0700 and 0600, for their owner alone") if _is_here(patient) else good(_NOT_HERE)


def _states_root(patient: Patient) -> Path:
    return next(state for _, state in _states(patient))


def _is_here(patient: Patient) -> bool:
    return any(True for _ in _states(patient))


def _owners(patient: Patient) -> list[Found]:
    running = {process.uid for process in _processes(patient)}
    owners = {path.lstat().st_uid for path in _own_files(patient)}
    if len(owners) > 1 or (running and owners and running != owners):
        return fail(
            f"files of uids {sorted(owners)}, daemons of {sorted(running) or 'none'}",
            "chown the folder to the daemon's user; another one could change what it trusts",
        )
    return good("files and daemons have one owner") if owners else good(_NOT_HERE)


def _configuration(patient: Patient) -> list[Found]:
    files = [path for name in ("cell.toml", BORGLET_FILE) if (path := patient.folder / name).is_file()]
    for path in files:
        if path.stat().st_mode & 0o022:
            return fail(f"{path} can be written by others", f"chmod go-w {path}")
        try:
            tomllib.loads(path.read_text("utf-8"))
        except ValueError as error:
            return fail(f"{path}: {error}", "Correct it before the next start; configs/ has examples")
    return (
        good("written by their owner alone") if files else good("no cell.toml or borglet.toml in this folder")
    )


def _client_files(patient: Patient) -> list[Found]:
    from borgish.cli.session import cells_folder

    del patient  # they are of whoever asks, whatever the cell
    tokens = [path for path in cells_folder().glob("*/token") if path.stat().st_mode & 0o077]
    if tokens:
        return fail(f"tokens open to others: {some_of([str(path) for path in tokens])}", "chmod 600 them")
    return good("tokens of `borgctl login` are for their user alone")


def _certificates(patient: Patient) -> list[Found]:
    from borgish.tls.authority import describe

    found: list[Found] = []
    for name, state in _states(patient):
        for file in (MASTER_FILE, MACHINE_FILE):
            if (state / file).is_file():
                validity = describe((state / file).read_bytes()).validity
                found += judged(
                    f"{name}'s {file}",
                    validity,
                    f"Is {name} running? It renews it at two thirds; see its log",
                )
    return found or good("no certificates of a cell in this folder")


def _authority_key(patient: Patient) -> list[Found]:
    keys = list(patient.folder.glob(AUTHORITY_KEYS))
    if not (patient.folder / AUTHORITY_FILE).is_file():
        return good("the authority's key is not on this host")
    if not keys:
        return warn("the key is kept elsewhere", "Bring it back in time: masters and machines renew with it")
    if loose := [str(path) for path in keys if path.stat().st_mode & 0o077]:
        return fail(
            f"open to others: {some_of(loose)}",
            "chmod 600 them, then `borgctl cell rotate-authority`: with it one is any machine, or the master",
        )
    return good("for the master alone")


def _disk(patient: Patient) -> list[Found]:
    states = [state for _, state in _states(patient) if state.is_dir()]
    if not states:
        return good(_NOT_HERE)
    free = min(shutil.disk_usage(state).free for state in states)
    text = f"{show_bytes(free)} free for what the daemons keep"
    if free < DISK_FAIL_BYTES:
        return fail(text, "Make room: with less, new work is refused, and what ended tasks wrote is dropped")
    return warn(text, "Make room, or give `state` another disk") if free < DISK_WARN_BYTES else good(text)


def _store(patient: Patient) -> list[Found]:
    """Whether the database is whole. Only while nobody writes it, and on a copy: SQLite would leave files of
    this user beside the original."""
    path = patient.folder / "cell.db"
    if not path.is_file():
        return good("no SQLite database in this folder")
    if any(process.name == "borgmaster" for process in _processes(patient)):
        return good("in use; the checkpoints above are read back from it")
    if (size := path.stat().st_size) > STORE_BYTES_MAX:
        return warn(f"{show_bytes(size)} are not copied to be looked at", "borgmaster looks at its start")
    problem = _integrity(path)
    if problem:
        return fail(problem, "Start borgmaster: it says what is good, and how to recover from there")
    return good("nobody uses it, and it is whole")


def _integrity(path: Path) -> str:
    import sqlite3

    with tempfile.TemporaryDirectory(prefix="borgctl-") as folder:
        for suffix in ("", "-wal"):
            if Path(f"{path}{suffix}").is_file():
                shutil.copy(f"{path}{suffix}", f"{folder}/cell.db{suffix}")
        connection = sqlite3.connect(f"{folder}/cell.db")
        try:
            said = connection.execute("pragma quick_check").fetchone()[0]
        except sqlite3.DatabaseError as error:
            said = str(error)
        finally:
            connection.close()
    return "" if said == "ok" else str(said)


def _sqlite(patient: Patient) -> list[Found]:
    import sqlite3

    if not (patient.folder / "cell.db").is_file():
        return good("no SQLite database in this folder")
    text = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < SQLITE_FIXED:
        return warn(
            f"{text}: before 3.51.3 two that write at a time can damage a database",
            "borgmaster is alone by its lock; open cell.db with mode=ro and nothing else",
        )
    return good(text)


# -- Processes --------------------------------------------------------------------------------------------


def _processes(patient: Patient) -> list[Process]:
    """Return the daemons that hold a lock of these folders."""
    locks = {name: "cell.lock" if name == "borgmaster" else "borglet.lock" for name, _ in _states(patient)}
    found = (process_holding(name, state / locks[name]) for name, state in _states(patient))
    return [process for process in found if process is not None]


def process_holding(name: str, lock: Path) -> Process | None:
    """Return the daemon that holds a lock; None where nobody does. Raises PermissionError."""
    import psutil

    try:
        pid, inode = int(lock.read_text().strip() or 0), lock.stat().st_ino
    except (FileNotFoundError, ValueError):
        return None
    if not _is_held(inode, pid):  # what it says is of one that is gone, and its pid another's by now
        return None
    try:
        it = psutil.Process(pid)
        status = Path(f"/proc/{pid}/status").read_text()
        limits = Path(f"/proc/{pid}/limits").read_text()
        core = limits.partition("Max core file size")[2].split()[0]
        return Process(
            name,
            pid,
            it.uids().effective,
            int(status.partition("CapEff:")[2].split()[0], 16),
            -1 if core == "unlimited" else int(core),
            _listens_on(it),
        )
    except (psutil.NoSuchProcess, FileNotFoundError):
        return None


def _listens_on(process: "psutil.Process") -> tuple[str, ...] | None:
    import psutil

    try:
        found = process.net_connections("tcp")
    except psutil.AccessDenied:  # a daemon shows what it has open to root alone
        return None
    return tuple(f"{one.laddr.ip}:{one.laddr.port}" for one in found if one.status == psutil.CONN_LISTEN)


def _is_held(inode: int, pid: int) -> bool:
    """Return whether the kernel knows of such a lock. To try it would take it from who is about to."""
    for _ in range(_LOOKS):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if len(words) > 5 and words[4] == str(pid) and words[5].rpartition(":")[2] == str(inode):
                return True
    return False


def _running(patient: Patient) -> list[Found]:
    found: list[Found] = []
    running = {process.name for process in _processes(patient)}
    for name, state in _states(patient):
        if name not in running:
            found += fail(f"no {name} runs on {state}", "Start it, as `systemctl start` or `borgctl up` does")
    return found or good("all that have a folder here run" if _is_here(patient) else _NOT_HERE)


def _rights(patient: Patient) -> list[Found]:
    masters = [it for it in _processes(patient) if it.name == "borgmaster"]
    for it in masters:
        if it.uid == 0 or it.capabilities:
            return warn(
                f"borgmaster (pid {it.pid}) runs as uid {it.uid} with capabilities {it.capabilities:x}",
                "Run it as a user of its own: configs/systemd/borgmaster.service does",
            )
    return good("as a user of its own, without capabilities" if masters else "no borgmaster runs here")


def _core_dumps(patient: Patient) -> list[Found]:
    processes = _processes(patient)
    dumping = [f"{it.name} (pid {it.pid})" for it in processes if it.core_bytes != 0]
    if dumping:
        return fail(
            f"may leave their memory on disk: {some_of(dumping)}",
            "Restart them: they turn it off at their start",
        )
    return good(f"off in {plural(len(processes), 'daemon')}")


def _listening(patient: Patient) -> list[Found]:
    """S1 and S2: beyond loopback only with certificates of a cell, or of one's own."""
    found: list[Found] = []
    for it in _processes(patient):
        if it.addresses is None:
            found += warn(f"where {it.name} listens is shown to root alone", "Run doctor as root")
            continue
        wide = [address for address in it.addresses if not is_loopback(address.rpartition(":")[0])]
        if wide and not _has_tls(patient):
            found += fail(
                f"{it.name} listens on {some_of(wide)} and has no certificates here",
                "Stop it; `borgctl cell init` makes what is needed",
            )
    return found or good("beyond loopback only with certificates")


def _has_tls(patient: Patient) -> bool:
    states = [state for _, state in _states(patient)]
    if any((state / file).is_file() for state in states for file in (MASTER_FILE, MACHINE_FILE)):
        return True
    files = [patient.folder / name for name in ("cell.toml", BORGLET_FILE)]
    return any("[tls]" in path.read_text("utf-8") for path in files if path.is_file())


# -- The machine ------------------------------------------------------------------------------------------


def _reaches_master(patient: Patient) -> list[Found]:
    """Whether a machine reaches one of its masters, and how far their clocks are apart. It has no token to
    ask with: what is refused was reached."""
    if not patient.is_machine:
        return good("this is not the folder of one machine")
    said: list[str] = []
    for url in several(str(_machine_file(patient.folder).get("master", ""))):
        try:
            with closing(connection_to(url)) as connection:
                connection.request("GET", "/v1/health")
                date = connection.getresponse().headers.get("date", "")
        except (OSError, http.client.HTTPException) as error:
            said.append(f"{url}: {error}")
            continue
        if not date:
            return good(f"{url} answers")
        skew = abs(SystemClock().now().wall - parsedate_to_datetime(date).timestamp())
        return judged_skew(max(0.0, skew - 1.0), f"{url} answers; this machine's clock and its")
    return fail(
        f"no master is reached: {'; '.join(said)}", "Look at the network, and `master` in borglet.toml"
    )


def _wide_rules(patient: Patient) -> list[Found]:
    """S20, S62, S70: what a machine's own file gives to tasks beyond the defaults."""
    found: list[Found] = []
    for folder in (patient.folder, *patient.folder.glob("machines/*")):
        if not (folder / BORGLET_FILE).is_file():
            continue
        path, file = folder / BORGLET_FILE, _machine_file(folder)
        process, docker = file.get("process", {}), file.get("docker", {})
        if process.get("confine") is False:
            found += fail(
                f"{path}: confine = false, tasks run as the borglet does", "Take it out of [process]"
            )
        if users := process.get("root_users"):
            found += warn(
                f"{path}: root_users = {users}", "Whoever is in it is root here; leave those who must"
            )
        if without := docker.get("without"):
            found += warn(
                f"{path}: containers do without {without}", "Mend the engine, and take it out of [docker]"
            )
        if mounts := docker.get("mounts"):
            found += warn(
                f"{path}: jobs with a grant may mount {mounts}", "Keep the list as short as it can be"
            )
    return found or good("the defaults, without root users, mounts, or measures turned off")


def _cgroups(patient: Patient) -> list[Found]:
    del patient  # of the kernel
    if CGROUPS_2.is_file():
        return good("version 2")
    return warn(
        "control groups of version 1: limits are held, but a group is ended one process after the other",
        "Boot with systemd.unified_cgroup_hierarchy=1",
    )


def _engine_socket(patient: Patient) -> list[Found]:
    """S68: whoever may use the engine is root on this machine."""
    del patient
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        return fail(
            f"DOCKER_HOST={host} is no socket of this machine", "Unset it: engines are used locally only"
        )
    path = Path(_socket_path())
    try:
        found = path.stat()
    except OSError:
        return good("no Docker engine here")
    if not stat.S_ISSOCK(found.st_mode):
        return good("no Docker engine here")
    if found.st_mode & 0o007:
        return fail(f"{path} is open to every user", f"chmod o= {path}: whoever uses it is root")
    members = _members(found.st_gid) if found.st_mode & 0o070 and found.st_gid else []
    if members:
        return warn(f"{path} is open to {some_of(members)}", "Leave nobody but the borglet in that group")
    return good(f"{path} is for root alone")


def _members(gid: int) -> list[str]:
    try:
        return list(grp.getgrgid(gid).gr_mem)
    except KeyError:
        return []


def _engine_ports(patient: Patient) -> list[Found]:
    import psutil

    del patient
    for it in psutil.process_iter(["name", "cmdline"]):
        words = it.info["cmdline"] or []
        if it.info["name"] == "dockerd" and any("tcp://" in word for word in words):
            return fail(
                f"dockerd (pid {it.pid}) listens on TCP", "Take -H tcp:// away; it is root's own door"
            )
    return good("no engine listens on TCP")


def _engine_version(patient: Patient) -> list[Found]:
    """S66."""
    del patient
    try:
        answer = ask_engine("/version")
    except FileNotFoundError:
        return good("no Docker engine here")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return warn(f"the engine does not answer: {error}", "Start it, or look into its log; then ask again")
    runc = next((it["Version"] for it in answer.get("Components", ()) if it["Name"] == "runc"), "")
    text = f"Docker {answer.get('Version', '?')}, runc {runc or '?'}"
    if is_old_runc(runc):
        return warn(
            f"{text}: older than the fixes of November 2025 (CVE-2025-31133, 52565, 52881)",
            "Upgrade to runc 1.2.8, 1.3.3 or newer; or see that your distribution has put the fixes in",
        )
    return good(text)


def is_old_runc(version: str) -> bool:
    """Return whether a version of runc is known, and older than the fixes."""
    numbers = version.replace("-", ".").replace("+", ".").split(".")[:3]
    if len(numbers) < 3 or not all(number.isdecimal() for number in numbers):
        return False
    major, minor, patch = map(int, numbers)
    if (major, minor) in RUNC_FIXED:
        return patch < RUNC_FIXED[major, minor]
    return (major, minor) < min(RUNC_FIXED)


def _socket_path() -> str:
    return os.environ.get("DOCKER_HOST", "").removeprefix("unix://") or _SOCKET


class _Engine(http.client.HTTPConnection):
    """The engine on its socket."""

    def connect(self) -> None:
        """Connect. Raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_ENGINE_SECONDS_MAX)
        self.sock.connect(_socket_path())


def ask_engine(path: str) -> dict[str, Any]:
    """Return what the engine answers to a GET. Raises OSError, ValueError and HTTPException."""
    connection = _Engine("localhost")
    try:
        connection.request("GET", path)
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return answer


HOST_CHECKS: tuple[Check, ...] = tuple(
    msgspec.structs.replace(check, of_cell=False)
    for check in (
        Check("daemons", _running),
        Check("master from here", _reaches_master),
        Check("disk", _disk),
        Check("database", _store),
        Check("sqlite", _sqlite),
        Check("file modes", _modes, "S37"),
        Check("file owners", _owners, "S37"),
        Check("configuration", _configuration, "S37"),
        Check("certificate files", _certificates, "S6"),
        Check("login files", _client_files, "S15", security=True),
        Check("authority's key", _authority_key, "S4", security=True),
        Check("listening", _listening, "S2", security=True),
        Check("master's rights", _rights, "S38", security=True),
        Check("core dumps", _core_dumps, "S39", security=True),
        Check("machine's file", _wide_rules, "S20", security=True),
        Check("control groups", _cgroups, "S71", security=True),
        Check("engine's socket", _engine_socket, "S68", security=True),
        Check("engine's ports", _engine_ports, "S68", security=True),
        Check("engine's version", _engine_version, "S66", security=True),
    )
)
