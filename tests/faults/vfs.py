"""Stands between SQLite and its files: writes down each write and sync, and lets those fail that are to.

SQLite's own layer for files is a table of functions in the library that Python's ``sqlite3`` has loaded.
While ``watched`` lasts, opening goes through here, and each opened file gets a copy of its table in which
the functions that change the file are ours; they call the real ones.
"""

import ctypes
import ctypes.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

FULL, WRITE_FAILED, SYNC_FAILED, READ_ONLY = 13, 778, 1034, 8  # SQLite's result codes

_int, _int64, _pointer, _text = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
# Names of files are passed on as the pointers they are: SQLite keeps them, and more behind them.
_Open = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _pointer, _int, ctypes.POINTER(_int))
_Delete = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _int)
_Close = ctypes.CFUNCTYPE(_int, _pointer)
_Write = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _int, _int64)
_Truncate = ctypes.CFUNCTYPE(_int, _pointer, _int64)
_Sync = ctypes.CFUNCTYPE(_int, _pointer, _int)


class _Vfs(ctypes.Structure):
    _fields_ = [
        ("version", _int),
        ("file_size", _int),
        ("path_max", _int),
        ("next", _pointer),
        ("name", _text),
        ("data", _pointer),
        ("open", _pointer),
        ("delete", _pointer),
    ]


class _Methods(ctypes.Structure):
    """Those of an opened file; the ones that are not named here are copied as they are."""

    _fields_ = [
        ("version", _int),
        ("close", _pointer),
        ("read", _pointer),
        ("write", _pointer),
        ("truncate", _pointer),
        ("sync", _pointer),
        ("others", _pointer * 13),
    ]


class Done(msgspec.Struct, frozen=True):
    """One change of a file: ``write``, ``truncate`` (``offset`` is the new size), ``sync`` or ``delete``."""

    what: str
    path: str
    offset: int = 0
    data: bytes = b""


Refuse = Callable[[Done], int]
"""Is asked before each change; returns SQLite's code of a failure, 0 to let it be."""


_KEPT: list[Any] = []
"""What SQLite holds pointers to, for ever: a file may be closed by the garbage collector."""


class Watched:
    """What was done to files, in order. ``refuse`` may be set at any time."""

    def __init__(self) -> None:
        self.done: list[Done] = []
        self.refuse: Refuse = lambda _: 0
        self.has_shared_memory = True  # without, there can be no WAL
        self._paths: dict[int, str] = {}  # by address of the open file
        self._real: dict[int, _Methods] = {}

    def _do(self, change: Done, real: Callable[[], int]) -> int:
        if code := self.refuse(change):
            return code
        self.done.append(change)
        return real()

    def opened(self, file: int, path: str) -> None:
        """Put our functions into a file that was just opened."""
        place = ctypes.cast(file, ctypes.POINTER(_pointer))
        real = ctypes.cast(place[0], ctypes.POINTER(_Methods)).contents
        ours = _Methods.from_buffer_copy(real)
        if not self.has_shared_memory:
            ours.version = 1
        functions = {
            "close": _Close(self._close),
            "write": _Write(self._write),
            "truncate": _Truncate(self._truncate),
            "sync": _Sync(self._sync),
        }
        for name, function in functions.items():
            setattr(ours, name, ctypes.cast(function, _pointer))
        _KEPT.extend((ours, functions))
        self._paths[file], self._real[file] = path, real
        place[0] = ctypes.addressof(ours)

    def _close(self, file: int) -> int:
        real = self._real.pop(file)
        del self._paths[file]
        return int(_Close(real.close)(file))

    def _write(self, file: int, data: int, size: int, offset: int) -> int:
        change = Done("write", self._paths[file], offset, ctypes.string_at(data, size))
        return self._do(change, lambda: int(_Write(self._real[file].write)(file, data, size, offset)))

    def _truncate(self, file: int, size: int) -> int:
        change = Done("truncate", self._paths[file], size)
        return self._do(change, lambda: int(_Truncate(self._real[file].truncate)(file, size)))

    def _sync(self, file: int, flags: int) -> int:
        change = Done("sync", self._paths[file])
        return self._do(change, lambda: int(_Sync(self._real[file].sync)(file, flags)))


@contextmanager
def watched() -> Iterator[Watched]:
    """Watch the files of every database that is opened and closed meanwhile, in this process."""
    watching, vfs = Watched(), _vfs()
    real_open, real_delete = vfs.open, vfs.delete

    def opening(itself: int, path: int | None, file: int, flags: int, given: Any) -> int:
        code = int(_Open(real_open)(itself, path, file, flags, given))
        if code == 0 and path:
            watching.opened(file, ctypes.string_at(path).decode())
        return code

    def deleting(itself: int, path: int, sync: int) -> int:
        change = Done("delete", ctypes.string_at(path).decode())
        return watching._do(change, lambda: int(_Delete(real_delete)(itself, path, sync)))

    functions = _Open(opening), _Delete(deleting)
    vfs.open, vfs.delete = (ctypes.cast(function, _pointer).value for function in functions)
    try:
        yield watching
    finally:
        vfs.open, vfs.delete = real_open, real_delete


def _vfs() -> _Vfs:
    find = _library().sqlite3_vfs_find
    find.restype, find.argtypes = ctypes.POINTER(_Vfs), [_text]
    found: _Vfs = find(None).contents
    return found


def _library() -> ctypes.CDLL:
    """Return the SQLite that Python's own module uses: the one loaded into this process."""
    import _sqlite3

    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libsqlite3" in line}
    # Built into the module itself where there is no library of its own.
    return ctypes.CDLL(Path(loaded.pop()).as_posix() if loaded else _sqlite3.__file__)
