"""Names that are one slip of the hand away from another, as resources of a name of their own that were most
likely meant to be one that every machine has.

Any name is a resource that machines may have, so that ``rma: 1`` is right in itself.
"""

from collections.abc import Iterable, Iterator

from borgish.spec.job import JobSpec

USUAL = ("cpu", "ram", "disk", "devices")
_OTHERS = ("gpu", "tpu", "npu", "dpu", "vpu")  # one letter from cpu, and meant as they are


def meant_by_slip(word: str, names: Iterable[str]) -> str:
    """Return the first of the names that is one slip away from a word, or "".

    For names that users choose: it takes some microseconds a name, whatever they are, and ``difflib``, which
    finds more, milliseconds for each of some names.
    """
    return next((name for name in names if _is_one_slip(word, name)), "")


def usual_resource(name: str) -> str:
    """Return the usual resource that is one slip away from a name, or ""."""
    word = name.lower()
    return "" if word in _OTHERS else next((usual for usual in USUAL if _is_one_slip(word, usual)), "")


def resource_slips(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield each name of a job's resources that looks like a slip, and what to say of it."""
    given = (spec.resources, *(each.resources for each in spec.overrides.values() if each.resources))
    for name in dict.fromkeys(name for amounts in given for name in amounts.named):
        if usual := usual_resource(name):
            yield name, f"'{name}' is a resource of a name of its own; did you mean {usual}?"


def _is_one_slip(word: str, meant: str) -> bool:
    """Return whether one letter is too many, missing, another, or two neighbours changed places."""
    if abs(len(word) - len(meant)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(word, meant, strict=False)) if a != b), None)
    if start is None:
        return word != meant
    rest, meant_rest = word[start:], meant[start:]
    swapped = rest[:2] == meant_rest[:2][::-1] and rest[2:] == meant_rest[2:]
    return swapped or rest[1:] in (meant_rest, meant_rest[1:]) or rest == meant_rest[1:]
