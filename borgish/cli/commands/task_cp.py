"""Files copied out of a task, or into it, as a stream: an archive that tar beside the task makes or reads.

What comes out of a task is taken for hostile: nothing is written but below the place that was asked for, no
link on the way is followed, and none is made that leads elsewhere.
"""

import os
import posixpath
import re
import tarfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import IO, Any, BinaryIO, cast

import msgspec

from borgish.cli.commands.task_exec import SILENCE_SECONDS, Running
from borgish.cli.screen import print_err, print_out
from borgish.client import Client
from borgish.errors import BorgishError, Invalid
from borgish.resources import show_bytes
from borgish.text import plural, safe
from borgish.vocabulary import NAME_PATTERN
from borgish.wire.api_commands import CopyCall

CHUNK_BYTES = 256 * 1024
HEADERS_BYTES_MAX = 1024 * 1024  # between two files; long names need a few kilobytes
REST_BYTES_MAX = 16 * 1024 * 1024  # behind an archive: what fills it up, and a line of tar about each file
FILES_MAX = 1_000_000
PATH_CHARACTERS_MAX = 4096  # no program can open what has a longer one
SAID_BYTES_MAX = 16 * 1024
_NOTHING_MORE = "Nothing more was copied"
_NO_FILE = "it is no file, folder or link"
_REMARK = re.compile(  # of tar, which fails for something else, if there is anything else
    r": (removing leading .*|(socket|door|unknown file type; file) ignored|.* in the future"
    r"|file (changed as|removed before) we read it|(exiting with failure|error exit delayed) .*)",
    re.IGNORECASE,
)
_TASK = re.compile(f"(?:{NAME_PATTERN}/)?{NAME_PATTERN}/[0-9]+", re.ASCII)


class Place(msgspec.Struct, frozen=True):
    """One side of a copy. ``task`` "": here."""

    task: str
    path: str


def split_place(text: str) -> Place:
    """Read ``web/0:logs`` or the path of a file here; ``./web/0:logs`` is one."""
    task, colon, path = text.partition(":")
    if colon and _TASK.fullmatch(task):
        return Place(task, path or ".")
    return Place("", text)


class Copied:
    """Counts what was copied, and what was not."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.files = self.folders = self.bytes = 0
        self._left_out = 0

    def add_file(self) -> None:
        """Count one more. Raises BorgishError for one too many."""
        self.files += 1
        self._expect_few()

    def add_folder(self) -> None:
        """Count one more. Raises BorgishError for one too many."""
        self.folders += 1
        if self.folders > FILES_MAX:
            raise BorgishError(f"There are more than {FILES_MAX} folders", "Copy them one by one")

    def add_bytes(self, amount: int) -> None:
        """Count more of a file. Raises BorgishError for too much."""
        self.bytes += amount
        if self.bytes > self._bytes_max:
            raise BorgishError(f"It is more than {show_bytes(self._bytes_max)}", "--max SIZE allows more")

    def leave_out(self, name: str, why: str) -> None:
        """Say that something is not copied. Raises BorgishError for one too many."""
        self._left_out += 1
        self._expect_few()
        print_err(f"left out: {safe(name)}: {why}")

    def _expect_few(self) -> None:
        if self.files + self._left_out > FILES_MAX:
            raise BorgishError(f"There are more than {FILES_MAX} files", "Copy them folder by folder")

    def show(self) -> None:
        """Say what was copied. Raises BorgishError where nothing was, not even an empty folder."""
        if not (self.files or self.folders):
            raise BorgishError("Nothing was copied", "Files, folders and the links between them can be")
        print_out(f"copied {plural(self.files, 'file')}, {show_bytes(self.bytes)}")


# -- Out of a task ------------------------------------------------------------------------------------------


def copy_out(client: Client, path: str, call: CopyCall, target: str, bytes_max: int) -> None:
    """Copy what a task has at the path of ``call`` to ``target``. Raises BorgishError."""
    name = posixpath.basename(call.path.rstrip("/"))
    if name in ("", ".", ".."):
        name = ""  # all that is in there
    copied = Copied(bytes_max)
    with ExitStack() as stack:
        try:
            root, new_name = _open_target(target, name, stack)
            running = Running(client, f"{path}/copy", "", call, with_input=False)
            output = Output(running.output())
            _unpack(output, Unpacker(root, name, new_name, copied))
            said = output.after_archive()
        except tarfile.TarError:
            output.drain()
            _expect_success(running.exit_code(), output.said(), always=True)
        except OSError as error:
            raise _local_error(error, target) from None
    _expect_success(running.exit_code(), said)
    if said:
        print_err(said)
    copied.show()


def _open_target(target: str, name: str, stack: ExitStack) -> tuple[int, str]:
    """Return the folder to write in, and under which name; "": all of it goes right there."""
    if not name and not os.path.isdir(target):
        os.mkdir(target)
    if os.path.isdir(target):
        folder, new_name = target, name
    else:
        folder, new_name = os.path.split(target)
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, fd)
    return fd, new_name


class Output:
    """The output of a copy as a file that tarfile reads. It keeps the end of what went through."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self._end = b""
        self.left = HEADERS_BYTES_MAX  # so much may be read before it is said that it may go on

    def read(self, size: int) -> bytes:
        """Return up to so many bytes, b"" at the end. Raises TarError for more than may be read."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        some, self._rest = self._rest[:size], self._rest[size:]
        self._end = (self._end + some)[-SAID_BYTES_MAX:]
        self.left -= len(some)
        if self.left < 0:
            raise tarfile.HeaderError("it has no end")
        return some

    def drain(self) -> None:
        """Read to the end. Raises BorgishError where there seems to be none."""
        self.left = REST_BYTES_MAX
        try:
            while self.read(CHUNK_BYTES):
                pass
        except tarfile.TarError:
            raise BorgishError(
                f"The task sent more than {show_bytes(REST_BYTES_MAX)} behind the files", _NOTHING_MORE
            ) from None

    def after_archive(self) -> str:
        """Return what was said after the end of the archive, which is zeros."""
        self.drain()
        return self._end.rpartition(b"\0")[2].decode(errors="replace").strip()

    def said(self) -> str:
        """Return the last that was said."""
        return self._end.decode(errors="replace").strip()


def _unpack(output: Output, unpacker: "Unpacker") -> None:
    with tarfile.open(fileobj=cast("BinaryIO", output), mode="r|") as archive:
        while True:
            output.left = HEADERS_BYTES_MAX
            member = archive.next()
            if member is None:
                break
            cast("Any", archive).members.clear()  # or they would pile up
            content = archive.extractfile(member) if member.isreg() else None
            output.left = member.size + HEADERS_BYTES_MAX
            unpacker.take(member, content)


class Unpacker:
    """Writes members of an archive below a folder, ``root``, where ``name`` becomes ``new_name``."""

    def __init__(self, root: int, name: str, new_name: str, copied: Copied) -> None:
        self._root, self._name, self._new_name, self._copied = root, name, new_name, copied

    def take(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        """Write one. Raises OSError and BorgishError."""
        try:
            self._take(member, content)
        except (ValueError, OverflowError) as error:  # a NUL in a name, a time that no file system has
            raise BorgishError(
                f"The task sent {safe(member.name)}, which cannot be written: {error}", _NOTHING_MORE
            ) from None

    def _take(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        parts = self._parts(member.name)
        if why := _why_not(member):
            self._copied.leave_out(member.name, why)
            return
        if member.isdir():
            self._copied.add_folder()
            if not parts:
                return
        elif not parts:
            raise self._foreign(member.name)
        else:
            self._copied.add_file()
        folder = self._folder(parts[:-1])
        try:
            self._write(member, parts[-1], folder, content)
        finally:
            os.close(folder)

    def _write(self, member: tarfile.TarInfo, name: str, folder: int, content: IO[bytes] | None) -> None:
        if member.isdir():
            with suppress(FileExistsError):
                # Whoever copies owns it here, and puts in what follows.
                os.mkdir(name, member.mode & 0o777 | 0o700, dir_fd=folder)
            os.close(_enter(name, folder))
        elif member.issym():
            _remove(name, folder)
            os.symlink(member.linkname, name, dir_fd=folder)
        elif member.islnk():
            other = self._parts(member.linkname)
            if not other:
                raise self._foreign(member.linkname)
            there = self._folder(other[:-1])
            try:
                _remove(name, folder)
                os.link(other[-1], name, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False)
            finally:
                os.close(there)
        elif content is not None:
            self._write_file(member, name, folder, content)

    def _write_file(self, member: tarfile.TarInfo, name: str, folder: int, content: IO[bytes]) -> None:
        _remove(name, folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(name, flags, member.mode & 0o777, dir_fd=folder), "wb") as file:
            for piece in iter(lambda: content.read(CHUNK_BYTES), b""):
                self._copied.add_bytes(len(piece))
                file.write(piece)
            file.flush()
            os.utime(file.fileno(), (member.mtime, member.mtime))

    def _parts(self, path: str) -> list[str]:
        """Return where a member goes below the root. Raises BorgishError for one that was not asked for."""
        if len(path) > PATH_CHARACTERS_MAX:
            raise BorgishError(
                f"The task sent a path of more than {PATH_CHARACTERS_MAX} characters", _NOTHING_MORE
            )
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts or path.startswith("/") or (self._name and parts[:1] != [self._name]):
            raise self._foreign(path)
        return [self._new_name, *parts[1:]] if self._name else parts

    def _foreign(self, path: str) -> BorgishError:
        return BorgishError(f"The task sent {safe(path)}, which was not asked for", _NOTHING_MORE)

    def _folder(self, parts: list[str]) -> int:
        """Return a descriptor of a folder, made where it is missing; a link on the way is an error."""
        fd = os.dup(self._root)
        for part in parts:
            try:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=fd)
                    self._copied.add_folder()
                below = _enter(part, fd)
            finally:
                os.close(fd)
            fd = below
        return fd


def _why_not(member: tarfile.TarInfo) -> str:
    """Return why a member is not copied; "": it is."""
    if member.issym() and (member.linkname.startswith("/") or ".." in member.linkname.split("/")):
        return f"a link that leads elsewhere, to {safe(member.linkname)}"
    return "" if member.isreg() or member.isdir() or member.issym() or member.islnk() else _NO_FILE


def _enter(name: str, folder: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


# -- Into a task --------------------------------------------------------------------------------------------


def copy_in(client: Client, path: str, call: CopyCall, source: str, bytes_max: int) -> None:
    """Copy a file or folder of here, ``source``, to the path of ``call`` in a task. Raises BorgishError."""
    if not os.path.exists(source):
        raise Invalid(f"there is no file or folder {source} here", "A path in a task is written TASK:PATH")
    call = msgspec.structs.replace(call, silence_seconds=SILENCE_SECONDS)
    running = Running(client, f"{path}/copy", f"{path}/exec/stdin", call, with_input=True)
    read, write = os.pipe()
    packer = Packer(source, call.path, open(write, "wb"), Copied(bytes_max))  # noqa: SIM115 - it closes it
    packing = threading.Thread(target=packer.run, daemon=True)
    packing.start()
    try:
        code = running.converse(read, packer.hear)
    finally:
        os.close(read)
    packing.join()
    packer.expect_success()
    _expect_success(code, packer.said())
    packer.copied.show()


class _Archive(tarfile.TarFile):
    def gettarinfo(self, *args: Any, **options: Any) -> tarfile.TarInfo:
        """Return a member also for a socket, which would be passed over without a word."""
        found: tarfile.TarInfo | None = super().gettarinfo(*args, **options)
        if found is None:
            found = tarfile.TarInfo(args[1])
            found.type = tarfile.FIFOTYPE
        return found


class Packer:
    """Makes an archive when it is known under which name, in a thread of its own."""

    def __init__(self, source: str, path: str, into: BinaryIO, copied: Copied) -> None:
        self._source, self._path, self._into, self.copied = source, path, into, copied
        self._answered = threading.Event()
        self._output = b""
        self._name = ""  # of what is copied, in the archive
        self._error: OSError | tarfile.TarError | BorgishError | None = None

    def hear(self, pieces: Iterable[bytes]) -> None:
        """Take in what the task says: what its path is, then what is wrong."""
        try:
            for piece in pieces:
                self._output = (self._output + piece)[:SAID_BYTES_MAX]
                if b"\n" in self._output:
                    self._answered.set()
        finally:
            self._answered.set()

    def said(self) -> str:
        """Return what the task said beside its answer."""
        return self._output.decode(errors="replace").removeprefix("folder\n").removeprefix("name\n").strip()

    def run(self) -> None:
        """Pack it all."""
        self._answered.wait()
        try:
            with self._into:
                if self._output.startswith((b"folder\n", b"name\n")):
                    self._pack()
        except BrokenPipeError:
            pass  # the task's tar has ended, and says why
        except (OSError, tarfile.TarError, BorgishError) as error:
            self._error = error

    def expect_success(self) -> None:
        """Raise what kept it from being packed."""
        if isinstance(self._error, OSError):
            raise _local_error(self._error, self._source)
        if self._error is not None:
            raise self._error

    def _pack(self) -> None:
        own = os.path.basename(os.path.abspath(self._source))
        new = posixpath.basename(self._path)
        self._name = "./" + (own if self._output.startswith(b"folder\n") else new)
        with _Archive.open(
            fileobj=self._into, mode="w|", format=tarfile.GNU_FORMAT, bufsize=CHUNK_BYTES
        ) as archive:
            archive.add(os.path.realpath(self._source), self._name, filter=self._prepared)

    def _prepared(self, member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        """Return a member without its owner, which is nobody's business; None for what is not copied."""
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            self.copied.leave_out(self._source + member.name.removeprefix(self._name), _NO_FILE)
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        if member.isdir():
            self.copied.add_folder()
        else:
            self.copied.add_file()
            self.copied.add_bytes(member.size)
        return member


def _expect_success(code: int, said: str, *, always: bool = False) -> None:
    if code or always:
        lines = said.splitlines() or [f"it ended with {code}"]
        why = safe(next((line for line in lines if not _REMARK.search(line)), lines[0]))
        hint = (
            "It needs sh and tar beside the task" if code in (126, 127) else "It is done as the task's user"
        )
        raise BorgishError(f"The task cannot copy it: {why}", hint)


def _local_error(error: OSError, path: str) -> BorgishError:
    return BorgishError(f"{error.filename or path}: {(error.strerror or str(error)).lower()}")
