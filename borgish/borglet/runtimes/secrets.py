"""What secrets are worth, for the programs of this machine: in memory, never on a disk.

``<base>/<attempt>/`` has ``files/``, which the programs of a task see as ``$BORGISH_SECRETS``, and ``env/``,
a file a variable. Files are replaced when the secret gets another value, so that a program that reads them
again has it within seconds; variables are read at each start. All of it outlives the borglet, as the programs
do, and no boot: attempts then wait for the borgmaster's next word.

The base is in a file system of memory (tmpfs), and opens to nobody: each attempt's folders belong to the user
that its programs run as.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from borgish.borglet.runtimes.folders import key_of, name_of
from borgish.errors import UnsafeConfiguration
from borgish.trees import remove_tree
from borgish.wire.link import Assignment, AttemptSpec, main_key

FILES, ENV = "files", "env"
_TMPFS_TYPES = frozenset({"tmpfs", "ramfs"})


class Place(NamedTuple):
    """Where an attempt's secrets are; "" for none of that kind."""

    files: str = ""
    env: str = ""


NOWHERE = Place()


class SecretFolders:
    """The secrets of this machine's attempts, beneath one folder; ``base`` is made when there is one to keep.

    ``base`` is None where the machine has no file system in memory: then tasks with secrets wait for ever.
    """

    def __init__(self, base: Path | None) -> None:
        self._base = base
        self._with_nul: dict[str, set[str]] = {}  # by attempt: secrets that no environment can have

    def hold(self, assignment: Assignment) -> None:
        """Keep what an assignment brings. Raises OSError, and UnsafeConfiguration for a base that is not
        ours."""
        values = {(each.user, each.name): each.value for each in assignment.secrets}
        for spec in assignment.run:
            if self._base is None or not has_secrets(spec):
                continue
            self._make_base(self._base)
            folder = self._base / name_of(spec.key)
            folder.mkdir(exist_ok=True)
            folder.chmod(0o711)  # whatever the umask is: who is held apart passes through to what is theirs
            for kind, wanted in _wanted(spec):
                place = folder / kind
                place.mkdir(mode=0o700, exist_ok=True)
                for name, secret in wanted.items():
                    value = values.get((spec.user, secret))
                    if value is None:
                        continue
                    if kind == ENV and b"\0" in value:
                        self._with_nul.setdefault(spec.key, set()).add(secret)
                    else:
                        _write(place, name, value)

    def lacking(self, specs: Iterable[AttemptSpec]) -> dict[str, str]:
        """Return why attempts cannot start for want of a secret, by their keys."""
        return {spec.key: why for spec in specs if (why := self._why(spec))}

    def _why(self, spec: AttemptSpec) -> str:
        if not has_secrets(spec):
            return ""
        if self._base is None:
            return "it has secrets, and this machine has no tmpfs to keep them in: neither /run nor /dev/shm"
        for kind, wanted in _wanted(spec):
            for name, secret in wanted.items():
                if not (self._base / name_of(spec.key) / kind / name).exists():
                    if kind == ENV and secret in self._with_nul.get(spec.key, ()):
                        return (
                            f"the secret {secret} of {spec.user} has a NUL byte, "
                            "which no environment can have: use it in secret_files"
                        )
                    return (
                        f"waits for the secret {secret} of {spec.user}: "
                        f"`borgctl secret set {secret} --user {spec.user}` makes it"
                    ) + ("; one with a NUL byte is for secret_files" if kind == ENV else "")
        return ""

    def place(self, spec: AttemptSpec) -> Place:
        """Return where the secrets of a task are, for the start of one of its programs."""
        if self._base is None or not has_secrets(spec):
            return NOWHERE
        folder = self._base / name_of(main_key(spec.key))
        return Place(
            str(folder / FILES) if spec.secret_files else "", str(folder / ENV) if spec.secret_env else ""
        )

    def forget(self, key: str) -> None:
        """Let go of an attempt's secrets."""
        if self._base is not None and key == main_key(key):
            remove_tree(self._base / name_of(key))
            self._with_nul.pop(key, None)

    def keep_only(self, keys: Iterable[str]) -> None:
        """Let go of the secrets of all other attempts."""
        if self._base is None:
            return
        known = set(keys)
        self._with_nul = {key: names for key, names in self._with_nul.items() if key in known}
        with contextlib.suppress(FileNotFoundError):
            for path in list(self._base.iterdir()):
                if key_of(path.name) not in known:
                    remove_tree(path)

    def leave(self) -> None:
        """Let go of all of it."""
        if self._base is not None:
            remove_tree(self._base)

    def _make_base(self, base: Path) -> None:
        # Others pass through the base to the folder that is theirs, where users are held apart at all.
        mode = 0o711 if os.geteuid() == 0 else 0o700
        with contextlib.suppress(FileExistsError):
            base.mkdir(mode=mode)
            base.chmod(mode)  # whatever the umask is
        found = base.lstat()
        if found.st_uid != os.geteuid() or not base.is_dir() or base.is_symlink():
            raise UnsafeConfiguration(
                f"{base} belongs to somebody else, and secrets would be kept in it", f"remove {base}"
            )

    @property
    def base(self) -> str:
        """Return the folder that has them all, "" for none."""
        return str(self._base or "")


NO_SECRETS = SecretFolders(None)
"""Those of a runtime of which nobody wants any."""


def has_secrets(spec: AttemptSpec) -> bool:
    """Return whether a task gets any."""
    return bool(spec.secret_env or spec.secret_files)


def _wanted(spec: AttemptSpec) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield FILES, spec.secret_files
    yield ENV, spec.secret_env


def _write(folder: Path, name: str, value: bytes) -> None:
    """Write a value, all of it or nothing; it belongs to whoever the folder belongs to."""
    path = folder / name
    with contextlib.suppress(OSError):
        if path.read_bytes() == value:
            return
    owner = folder.stat()
    draft = folder / f".{name}"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400)
    with os.fdopen(descriptor, "wb") as file:
        file.write(value)
        if os.geteuid() == 0:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        os.fchmod(descriptor, _file_mode(owner.st_mode))
    draft.replace(path)


def _file_mode(folder_mode: int) -> int:
    return 0o444 if folder_mode & 0o005 else 0o400


def give(folder: str, uid: int, gid: int) -> None:
    """Let the user that a program runs as read one of its folders, and nobody else. Raises OSError.

    Who is not root cannot give anything away; a container's user reads it there as one of the others, whom
    the folder above keeps out on the machine.
    """
    mine = os.geteuid()
    is_root = mine == 0
    mode = 0o500 if is_root or uid in (-1, mine) else 0o555
    for path in (Path(folder), *Path(folder).iterdir()):
        if is_root and uid >= 0:
            os.chown(path, uid, gid, follow_symlinks=False)
        if path != Path(folder):
            path.chmod(_file_mode(mode))
    Path(folder).chmod(mode | 0o200 * (not is_root))


def memory_folder(state: Path) -> Path | None:
    """Return where a borglet with this state folder keeps secrets; None on a machine without a tmpfs."""
    mark = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]
    mounts = _mounted()
    places = ["/run", "/dev/shm"] if os.geteuid() == 0 else ["/dev/shm"]  # noqa: S108 - in it a folder of ours
    for place in places:
        if mounts.get(place) in _TMPFS_TYPES and os.access(place, os.W_OK):
            return Path(place) / f"borgish-secrets-{os.geteuid()}-{mark}"
    return None


def _mounted() -> dict[str, str]:
    """Return the kind of file system of each mount point."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return {}
    return {fields[1]: fields[2] for line in lines if len(fields := line.split()) > 2}
