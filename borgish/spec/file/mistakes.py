"""Mistakes in what users write: gathering them while a text is read, showing them like a good compiler
does, and suggesting what was meant.

Text of users is shown with every character that could move a cursor, or hide, written as an escape.
Where the mistakes come from is left to ``document`` (is it YAML?), ``kinds`` (is each value right?) and
``read`` (do they go together?).
"""

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from typing import NoReturn

from borgish.errors import Invalid, Mistake
from borgish.spec.job import JobSpec
from borgish.vocabulary import Runtime

MISTAKES_MAX = 100
DIGITS_MAX = 18
"""Numbers with more digits are outside every bound, and never converted."""

EXCERPT_COLUMNS = 160
"""A mistake's line is kept whole up to here; of a longer one, the part around the column."""

_BEFORE = 40  # characters kept before the column, where a line is cut
_QUOTE_MAX = 60
LINE_BREAK = re.compile(r"\r\n|\r|\n")


class Mistakes:
    """The mistakes found so far in one text. The one after ``MISTAKES_MAX`` ends the reading, so that a text
    full of mistakes costs no more than one of the same size that is right."""

    def __init__(self, text: str, source: str = "") -> None:
        self._text = text
        self.source = source
        self._lines: list[str] | None = None
        self._kept: list[Mistake] = []
        self._has_more = False

    def __len__(self) -> int:
        return len(self._kept)

    def report(self, line: int, column: int, message: str, hint: str = "", path: str = "") -> None:
        """Add a mistake at a line and column, both counted from 1. Raises Invalid when there are too many."""
        if len(self._kept) >= MISTAKES_MAX:
            self._has_more = True
            raise self.invalid()
        excerpt = self._excerpt(line, column)
        self._kept.append(Mistake(message, line, column, hint, excerpt, path, self.source))

    def report_elsewhere(self, source: str, message: str, hint: str = "") -> None:
        """Add a mistake in what was given beside the text, once however often it is found."""
        mistake = Mistake(message, hint=hint, source=source)
        if mistake not in self._kept:
            self._kept.append(mistake)

    def has(self, line: int, message: str) -> bool:
        """Return whether this was reported of a line."""
        return any(mistake.line == line and mistake.message == message for mistake in self._kept)

    def only(self, line: int, column: int, message: str, hint: str) -> NoReturn:
        """Raise Invalid with this mistake instead of all found before, which it explains."""
        self._kept.clear()
        self.report(line, column, message, hint)
        raise self.invalid()

    def stop(self) -> None:
        """Raise Invalid when there is a mistake."""
        if self._kept:
            raise self.invalid()

    def invalid(self) -> Invalid:
        """Return the error that carries every mistake found, of which there must be one, as in the text."""
        mistakes = sorted(self._kept, key=lambda m: (m.line, m.column))
        first, count = mistakes[0], f"{len(mistakes)} mistakes"
        if self._has_more:
            count = f"more than {count}"
            mistakes.append(_more_than(self.source))
        head = f"the job file has {'a mistake' if len(mistakes) == 1 else count}"
        where = f"line {first.line}: " if first.line else ""
        return Invalid(f"{head}; {where}{first.message}", first.hint, tuple(mistakes))

    def _excerpt(self, line: int, column: int) -> str:
        if self._lines is None:
            self._lines = lines_of(self._text)
        return cut_line(self._lines[line - 1], column) if 1 <= line <= len(self._lines) else ""


def all_of(found: Iterable[Mistake]) -> Invalid:
    """Return the error that carries the mistakes of several files, of which there must be one. One without a
    file is about all of them."""
    mistakes = list(dict.fromkeys(found))
    first, files = mistakes[0], len({mistake.source for mistake in mistakes})
    if not first.source:
        return Invalid(first.message, first.hint, tuple(mistakes))
    count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    if len(mistakes) > MISTAKES_MAX:
        count = f"more than {MISTAKES_MAX} mistakes"
        mistakes = [*mistakes[:MISTAKES_MAX], _more_than(mistakes[MISTAKES_MAX].source)]
    head = f"{quote(first.source)[1:-1]} has {count}" if files == 1 else f"{count} in {files} files"
    where = f"line {first.line}: " if first.line else ""
    if files > 1:
        where = f"{quote(first.source)[1:-1]}{f':{first.line}' if first.line else ''}: "
    return Invalid(f"{head}; {where}{first.message}", first.hint, tuple(mistakes))


def _more_than(source: str) -> Mistake:
    return Mistake(f"more than {MISTAKES_MAX} mistakes; the rest was not checked", source=source)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as editors count them."""
    return LINE_BREAK.split(text)


def cut_line(line: str, column: int) -> str:
    """Return the line as a mistake keeps it; ``caret_offset`` says where its column is in it."""
    if column > EXCERPT_COLUMNS:
        start = column - 1 - _BEFORE
        return "…" + line[start : start + 2 * _BEFORE]
    return line if len(line) <= EXCERPT_COLUMNS else line[:EXCERPT_COLUMNS] + "…"


def caret_offset(column: int) -> int:
    """Return the index, in a line cut by ``cut_line``, of the character at the column."""
    return column - 1 if column <= EXCERPT_COLUMNS else _BEFORE + 1


def safe(text: str) -> str:
    """Return the text with every character that is not plainly visible written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    return repr(char)[1:-1] if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def quote(text: str) -> str:
    """Return the text in quotes, on one line and not too long, for use inside a message."""
    short = text if len(text) <= _QUOTE_MAX else text[:_QUOTE_MAX] + "…"
    return f"'{safe(short)}'"


def show_mistakes(mistakes: tuple[Mistake, ...], source_name: str) -> str:
    """Return the mistakes as plain text: where, what, the line with a caret, the hint.

    web.yaml:2:8: tasks: 0 is outside 1 to 10000
      tasks: 0
             ^
      hint: write a whole number from 1 to 10000
    """
    return "\n".join(_show(mistake, safe(mistake.source or source_name)) for mistake in mistakes)


def _show(mistake: Mistake, source: str) -> str:
    place = f"{source}:{mistake.line}:{mistake.column}" if mistake.line else source
    lines = [f"{place}: {safe(mistake.message)}"]
    if mistake.excerpt:
        before = mistake.excerpt[: caret_offset(mistake.column)] if mistake.column else ""
        lines += [f"  {safe(mistake.excerpt)}", "  " + " " * _width(safe(before)) + "^"]
    if mistake.hint:
        lines.append(f"  hint: {safe(mistake.hint)}")
    return "\n".join(lines)


def _width(text: str) -> int:
    """Return how many columns of a terminal the text takes: East Asian wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


# What was meant: the nearest known word, a typing error, another system's word or way to write a number.


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that this one begins, or is most like, or ""."""
    words = list(known)
    word = word[:64].lower()
    begun = [known for known in words if len(word) > 2 and known.startswith(word)]
    return next(iter(begun or difflib.get_close_matches(word, words, 1, 0.6)), "")


def one_edit_away(word: str, names: Iterable[str]) -> str:
    """Return the first of the names that is one typing error away from a word, or "": one letter too many,
    missing, or another, or two neighbours that changed places.

    For names that users choose, of which there may be thousands: it takes some microseconds a name, whatever
    they are. ``nearest`` finds more, but ``difflib`` took 5 s for 2,000 names made for it.
    """
    return next((name for name in names if _is_one_edit(word, name)), "")


def _is_one_edit(word: str, meant: str) -> bool:
    if abs(len(word) - len(meant)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(word, meant, strict=False)) if a != b), None)
    if start is None:
        return word != meant
    rest, meant_rest = word[start:], meant[start:]
    swapped = rest[:2] == meant_rest[:2][::-1] and rest[2:] == meant_rest[2:]
    return swapped or rest[1:] in (meant_rest, meant_rest[1:]) or rest == meant_rest[1:]


_STANDARD_RESOURCES = ("cpu", "ram", "disk", "devices")
_NO_TYPOS = ("gpu", "tpu", "npu", "dpu", "vpu")  # one letter from cpu, and meant as they are


def standard_resource(name: str) -> str:
    """Return the resource of every machine that is one typing error away from a name, or ""."""
    word = name.lower()
    return "" if word in _NO_TYPOS else one_edit_away(word, _STANDARD_RESOURCES)


def resource_typos(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield each named resource of a job that looks like a typing error, and a warning about it.

    Machines may have resources of any name, so that ``rma: 1`` is right in itself.
    """
    given = (spec.resources, *(each.resources for each in spec.overrides.values() if each.resources))
    for name in dict.fromkeys(name for amounts in given for name in amounts.named):
        if meant := standard_resource(name):
            yield name, f"'{name}' is taken as a named resource; did you mean {meant}?"


def out_of_reach(spec: JobSpec) -> Iterator[str]:
    """Yield a warning about each path of plain programs that their user may well not reach, as far as the
    paths tell."""
    if spec.runtime is not Runtime.PROCESS or spec.root:
        return
    runs = [spec.run, *(program.run for program in spec.group)]
    opened = {spec.workdir, *(run[0] for run in runs if run)}  # an argument may well be made by the program
    for path in dict.fromkeys([*(word for run in runs for word in run), spec.workdir]):
        parts = path.split("/")
        if parts[:2] == ["", "root"] or (parts[:2] == ["", "home"] and parts[2:3] not in ([], [spec.user])):
            whose = "the home of somebody else"
            yield f"{path} is in {whose}, which tasks of {spec.user} may not be able to read"
        elif path in opened and (parts[:2] == ["", "tmp"] or parts[:3] == ["", "var", "tmp"]):
            yield f"{path} is in the machine's temporary files, of which each task has its own"


# What other systems, and people, call these things.
_OTHER_NAMES = {
    "args": "run",
    "argv": "run",
    "cmd": "run",
    "command": "run",
    "entrypoint": "run",
    "exec": "run",
    "replicas": "tasks",
    "count": "tasks",
    "instances": "tasks",
    "environment": "env",
    "memory": "ram",
    "mem": "ram",
    "cpus": "cpu",
    "cores": "cpu",
    "storage": "disk",
    "healthcheck": "health",
    "check": "health",
    "probe": "health",
    "working_dir": "workdir",
    "cwd": "workdir",
    "owner": "user",
    "limits": "resources",
    "restart_policy": "restart",
    "retries": "attempts",
    "timeout_seconds": "timeout",
    "period": "interval",
    "deadline": "max_runtime",
    "container": "image",
    "path": "http",
    "nodeselector": "constraints",
    "node_selector": "constraints",
    "preferences": "prefer",
    "preferred": "prefer",
    "affinity": "near",
    "affinities": "near",
    "anti_affinity": "apart",
    "antiaffinity": "apart",
    "topology_spread": "spread",
    "tolerate": "tolerations",
    "tolerates": "tolerations",
    "sidecars": "group",
    "containers": "group",
    "alloc": "in",
    "alloc_set": "in",
    "hostports": "fixed_ports",
    "static_ports": "fixed_ports",
    "shutdown_delay": "deregister",
    "cap_add": "capabilities",
    "volumes": "mounts",
    "runasuser": "user",
    **dict.fromkeys(("readonly", "readonlyrootfilesystem", "read_only_root"), "read_only"),
    "securitycontext": "container",
    **dict.fromkeys(("max_surge", "surge", "make_before_break"), "handover"),
}

# Fields of a part, which people look for in the job itself.
_PART_OF = {
    **dict.fromkeys(("cpu", "ram", "disk", "memory", "mem", "cpus"), "resources"),
    **dict.fromkeys(("policy", "attempts", "within", "backoff", "retries"), "restart"),
    **dict.fromkeys(("signal", "grace", "deregister", "shutdown_delay"), "stop"),
    **dict.fromkeys(("handover", "max_surge", "surge", "canaries", "settle", "on_failure"), "update"),
    **dict.fromkeys(("read_only", "capabilities", "mounts", "cap_add", "volumes"), "container"),
    **dict.fromkeys(("http", "tcp", "interval", "timeout", "failures"), "health"),
}


def other_name(word: str) -> str:
    """Return what borgish calls what other systems call so, or ""."""
    return _OTHER_NAMES.get(word.lower(), "")


def suggest_field(word: str, fields: Collection[str]) -> str:
    """Return the hint for an unknown field of a record that has these."""
    if (part := _PART_OF.get(word, "")) in fields:
        return f"write it inside {part}: {{{_OTHER_NAMES.get(word, word)}: ...}}"
    meant = other_name(word)
    close = meant if meant in fields else nearest(word, fields)
    return f"did you mean {close}?" if close else f"the fields are: {', '.join(fields)}"


_LEADING_ZEROS = re.compile(r"0+([0-9]{1,18})")
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:[_,'][0-9]{1,6}){1,5}")
_SIGNED_OR_POINT = re.compile(r"\+?([0-9]{1,18})(?:\.0*)?")
_POWER = re.compile(r"([1-9])(?:\.0*)?[eE]\+?([0-9])")
_OTHER_BASE = re.compile(r"0[xXoObB][0-9a-fA-F]{1,12}")


def meant_number(text: str) -> str:
    """Return the digits of the whole number that a text seems to stand for, or ""."""
    if match := _LEADING_ZEROS.fullmatch(text) or _SIGNED_OR_POINT.fullmatch(text):
        return match[1].lstrip("0") or "0"
    if _GROUPED.fullmatch(text):
        return re.sub("[^0-9]", "", text)[:DIGITS_MAX]
    if match := _POWER.fullmatch(text):
        return str(int(match[1]) * 10 ** int(match[2]))
    if _OTHER_BASE.fullmatch(text):
        try:
            return str(int(text, 0))
        except ValueError:  # 0b12
            return ""
    return ""
