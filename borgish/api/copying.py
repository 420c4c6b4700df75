"""The commands by which files are copied out of a task and into it.

They run as any command beside the task does: as its user, confined as it is, seeing what it sees. So a path
leads nowhere that the task itself could not read or write, whatever links are on it; neither borgmaster nor
borglet opens a file. They need ``sh`` and ``tar`` where the task runs.
"""

import posixpath

# The archive is the output up to its end mark; what tar has to say follows, since both streams are one.
_FROM_TASK = (
    'cd -- "$1" || exit; exec 3>&1; said=$(tar -cf - -- "$2" 2>&1 >&3 3>&-); code=$?; '
    'printf %s "$said"; exit "$code"'
)
# The first line says whether the path is a folder, into which goes what is copied, or its name to be.
_TO_TASK = (
    'if [ -d "$1" ]; then echo folder && cd -- "$1"; else cd -- "$2" && echo name; fi && exec tar -xpof -'
)


def copy_command(path: str, *, to_task: bool) -> tuple[str, ...]:
    """Return what to run for a copy."""
    if to_task:
        parent = path if path.endswith("/") else posixpath.dirname(path)
        return ("sh", "-c", _TO_TASK, "copy", path, parent or ".")
    folder, name = posixpath.split(path.rstrip("/") or "/")
    if name in ("", ".", ".."):
        folder, name = path, ""
    return ("sh", "-c", _FROM_TASK, "copy", folder or ".", f"./{name}")
