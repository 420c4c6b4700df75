"""What people name: a job, tasks, a machine; and the nearest to a name that is none."""

from collections.abc import Iterable
from difflib import get_close_matches

from borgish.cell.model import Cell
from borgish.errors import NotFound

_SHOWN_MAX = 8


def find_job(cell: Cell, name: str) -> str:
    """Return a job's key: named in full, or without its user where one has it. Raises NotFound."""
    if name in cell.jobs:
        return name
    found = [key for key in cell.jobs if key.partition("/")[2] == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"several users have a job '{name}'", f"Name it in full: {known(found)}")
    raise NotFound(f"there is no job '{name}' here", nearest(name, cell.jobs, "jobs"))


def find_tasks(cell: Cell, name: str) -> tuple[str, tuple[int, ...] | None]:
    """Return a job and, where one task of it is named, its index. Raises NotFound."""
    job, _, index = name.rpartition("/")
    if job and index.isdecimal():
        return find_job(cell, job), (int(index),)
    return find_job(cell, name), None


def find_machine(cell: Cell, name: str) -> str:
    """Return a machine by its name, or by a beginning that only it has. Raises NotFound."""
    if name in cell.machines:
        return name
    found = [each for each in cell.machines if each.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"several machines begin with '{name}'", f"There are {known(found)}")
    raise NotFound(f"there is no machine '{name}' here", nearest(name, cell.machines, "machines"))


def nearest(name: str, names: Iterable[str], what: str) -> str:
    """Return a hint: what may have been meant, or what there is."""
    there = sorted(names)
    close = get_close_matches(name, there, n=3)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"There are {known(there)}" if there else f"There are no {what}"


def known(names: Iterable[str]) -> str:
    """Return names, the first of many."""
    there = sorted(names)
    more = f" and {len(there) - _SHOWN_MAX} more" if len(there) > _SHOWN_MAX else ""
    return ", ".join(there[:_SHOWN_MAX]) + more
