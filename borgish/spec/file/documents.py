"""Several documents become an application: jobs that are read together, from one file or many.

Each document says what it is by its ``kind``; ``_READERS`` has a row for each. One with mistakes does not
keep the others from being read, so that all mistakes of all files are told at once.
"""

import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from contextlib import suppress
from typing import Any

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.errors import Invalid, Mistake
from borgish.spec.app import PART_BY_PART, AppSpec, Document
from borgish.spec.cron import CronSpec, cron_of, cron_values
from borgish.spec.file.document import EMPTY_HINT, Mapping, Node, Parsed, Scalar, child_of, parse_all
from borgish.spec.file.document import Sequence as List
from borgish.spec.file.fields import APP, APP_KIND
from borgish.spec.file.kinds import Place, Values, Wrong, text_at
from borgish.spec.file.mistakes import all_of, nearest, quote
from borgish.spec.file.read import NO_VARIABLES, job_of, job_values, limits_of, refuse_foreign
from borgish.spec.file.variables import GIVEN, VARS, Scope, Variable, declare, fill_in, undeclared
from borgish.spec.job import JobSpec
from borgish.vocabulary import DOCUMENTS_BYTES_MAX, DOCUMENTS_MAX, NAME_PATTERN, CronKind, JobKind

LABELS_MAX = 64


class Source(msgspec.Struct, frozen=True):
    """A file as it was written, or as Jsonnet gave it. Mistakes in it are told by its ``name``."""

    name: str
    text: str


class JobDocument(msgspec.Struct, frozen=True):
    """A job, and where it is written."""

    document: Document
    source: str
    line: int

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.document.spec


class CronDocument(msgspec.Struct, frozen=True):
    """A cron, and in which file it is."""

    spec: CronSpec
    source: str


class Documents(msgspec.Struct, frozen=True):
    """All that files say together; ``user`` is whose it is, and ``in_order`` is as in the files."""

    app: AppSpec | None
    in_order: tuple[JobDocument | CronDocument, ...]
    variables: tuple[Variable, ...]
    user: str = ""

    @property
    def jobs(self) -> tuple[JobDocument, ...]:
        """The jobs, in order."""
        return tuple(each for each in self.in_order if isinstance(each, JobDocument))

    @property
    def crons(self) -> tuple[CronSpec, ...]:
        """The crons, in order."""
        return tuple(each.spec for each in self.in_order if isinstance(each, CronDocument))


def read_documents(
    sources: Sequence[Source],
    default_user: str,
    bands: Bands = DEFAULT_BANDS,
    variables: Dict[str, str] = NO_VARIABLES,
) -> Documents:
    """Read files of any number of documents together, each YAML or JSON and at most 1 MiB.

    All belong to one user: the application's, or the one that every document names, or ``default_user``.
    ``bands`` are those of the cell, ``variables`` the values given for those that are declared.

    Raises Invalid with all mistakes of all files, each with its file, line and column; nothing else.
    """
    documents, mistakes = check_documents(sources, default_user, bands, variables)
    if mistakes:
        raise all_of(mistakes)
    return documents


def check_documents(
    sources: Sequence[Source],
    default_user: str,
    bands: Bands = DEFAULT_BANDS,
    variables: Dict[str, str] = NO_VARIABLES,
) -> tuple[Documents, tuple[Mistake, ...]]:
    """Return the documents without mistakes, as ``read_documents`` does, and the mistakes of the others."""
    if too_large := _too_large(sources):
        return Documents(None, (), ()), (too_large,)
    reading = _Reading(default_user, bands, variables)
    for source in sources:
        reading.parse(source)
    reading.read()
    return reading.documents(), tuple(reading.mistakes(sources))


def _too_large(sources: Sequence[Source]) -> Mistake | None:
    size = sum(len(source.text.encode("utf-8", "replace")) for source in sources)
    if size > DOCUMENTS_BYTES_MAX:
        message = f"the files have {size} bytes together; at most {DOCUMENTS_BYTES_MAX} (8 MiB) are read"
        return Mistake(message, hint="divide them into several applications")
    if not sources:
        return Mistake("there is no file to read", hint=EMPTY_HINT)
    return None


class _Document(msgspec.Struct):
    """One document, on its way from a tree to what it says."""

    root: Node
    place: Place
    parsed: Parsed
    sound: bool

    @property
    def kind(self) -> str:
        return text_at(self.root, "kind") or JobKind.JOB

    @property
    def where(self) -> str:
        return f"{self.place.found.source}:{self.root.line}"


class _Reading:
    """What is known while documents are read."""

    def __init__(self, default_user: str, bands: Bands, variables: Dict[str, str]) -> None:
        self.default_user, self.user = default_user, default_user
        self.variables = variables
        self.scope = Scope({})  # of the application: for every document
        self.app: tuple[_Document, AppSpec | None] | None = None
        self.labels: dict[str, str] = {}
        self._bands = bands
        self._unreadable: dict[str, list[Mistake]] = {}
        self._parsed: list[Parsed] = []
        self._documents: list[_Document] = []
        self._results: list[tuple[_Document, Any]] = []
        self._scopes: list[Scope] = []
        self._places: dict[tuple[str, str], _Document] = {}  # by what must be there once: kind and name

    def parse(self, source: Source) -> None:
        """Make trees of a file."""
        try:
            parsed = parse_all(source.text, source.name)
            refuse_foreign(parsed)
        except Invalid as error:
            self._unreadable.setdefault(source.name, []).extend(error.mistakes)
            return
        self._parsed.append(parsed)
        before = len(self._documents)
        for part in parsed.parts:
            place = Place("", parsed.found, self._bands)
            if not isinstance(part.root, List):
                self._documents.append(_Document(part.root, place, parsed, part.sound))
                continue
            for number, item in enumerate(part.root.items):
                if not (isinstance(item, Scalar) and item.plain and item.text in ("", "null")):
                    self._documents.append(_Document(item, place.item(number), parsed, part.sound))
        if parsed.whole and len(self._documents) == before:
            with suppress(Invalid):
                parsed.found.report(1, 1, "the file is empty", EMPTY_HINT)

    def read(self) -> None:
        """Read all documents, the application's first: what it says is for all of them."""
        if len(self._documents) > DOCUMENTS_MAX:
            document = self._documents[DOCUMENTS_MAX]
            message = f"{len(self._documents)} documents; at most {DOCUMENTS_MAX} are read together"
            with suppress(Invalid):
                document.place.report(document.root, message, "divide them into several applications")
            return
        if self._unreadable or not all(parsed.whole for parsed in self._parsed):
            self.scope.known = False  # what cannot be read may be the application
        self.user = self._owner()
        for document in sorted(self._documents, key=lambda each: each.kind != APP_KIND):
            with suppress(Invalid):  # too many mistakes: those that were found are kept
                self._read_one(document)

    def _owner(self) -> str:
        apps = [document for document in self._documents if document.kind == APP_KIND]
        named = {text_at(document.root, "user") for document in (apps[:1] or self._documents)}
        if not (apps and "" not in named):
            named = {text_at(document.root, "user") for document in self._documents}
        owner = next(iter(named)) if len(named) == 1 else ""
        return owner if re.fullmatch(NAME_PATTERN, owner) else self.default_user

    def _read_one(self, document: _Document) -> None:
        reader = _READERS.get(document.kind)
        if reader is None:
            node = child_of(document.root, "kind") or document.root
            close = nearest(document.kind, _READERS)
            message = f"{quote(document.kind)} is not one of {', '.join(_READERS)}"
            document.place.at("kind").report(node, message, f"did you mean {close}?" if close else "")
            return
        found, place = document.place.found, document.place
        before = len(found)
        document.root, own = declare(document.root, place, self.variables)
        self._scopes.append(own)
        if document.kind == APP_KIND and self.app is None:
            self.scope = Scope(own.values, own.known)
        scope = Scope({**self.scope.values, **own.values}, self.scope.known and own.known)
        document.root = fill_in(document.root, scope, place, document.parsed.text)
        result = reader(document, self)
        self._expect_once(document)
        if result is not None and document.sound and len(found) == before:
            self._results.append((document, result))

    def _expect_once(self, document: _Document) -> None:
        name, user = child_of(document.root, "name"), child_of(document.root, "user")
        if isinstance(user, Scalar) and user.text != self.user:
            message = f"{quote(user.text)} is another user than {self.user}, whose the others are"
            document.place.at("user").report(user, message, "apply the documents of each user by themselves")
        if not isinstance(name, Scalar):
            return
        kind = JobKind.JOB if document.kind in _JOB_KINDS else document.kind
        first = self._places.setdefault((kind, name.text), document)
        if first is not document:
            message = f"the {kind} {quote(name.text)} is there twice; the first is in {first.where}"
            document.place.at("name").report(name, message, "give one of them another name")

    def documents(self) -> Documents:
        """Return those without mistakes, in the order of the files."""
        order = {id(document): number for number, document in enumerate(self._documents)}
        results = sorted(self._results, key=lambda pair: order[id(pair[0])])
        app = next((result for _, result in results if isinstance(result, AppSpec)), None)
        declared = tuple(found for scope in self._scopes for found in scope.values.values() if found)
        in_order = (
            CronDocument(result, document.place.found.source) if isinstance(result, CronSpec) else result
            for document, result in results
            if not isinstance(result, AppSpec)
        )
        return Documents(app, tuple(in_order), declared, self.user)

    def mistakes(self, sources: Sequence[Source]) -> list[Mistake]:
        """Return all mistakes found, in the order of the files."""
        found = dict(self._unreadable)
        for parsed in self._parsed:
            if len(parsed.found):
                found.setdefault(parsed.found.source, []).extend(parsed.found.invalid().mistakes)
        names = dict.fromkeys(source.name for source in sources)
        mistakes = [mistake for name in names for mistake in found.get(name, [])]
        if self.scope.known:
            for message, hint in undeclared(self.variables, self._scopes):
                mistakes.append(Mistake(message, hint=hint, source=GIVEN))
        return list(dict.fromkeys(mistakes))


def _read_app(document: _Document, reading: _Reading) -> AppSpec | None:
    """Read the application, of which there is one."""
    if reading.app is not None:
        first = reading.app[0].where
        message = f"a second application (kind: {APP_KIND}); the first is in {first}"
        document.place.report(document.root, message, "apply each application by itself")
        reading.scope.known = False  # its variables are not those of the others, which may be of it
        return None
    given: dict[str, Any] = {}
    try:
        given = APP.read(document.root, document.place)
    except Wrong as wrong:
        document.place.report(document.root, wrong.message, wrong.hint)
    reading.labels = given.get("labels", {})
    spec = AppSpec(**{"user": reading.user, **given}) if "name" in given else None
    reading.app = document, spec
    return spec


def _read_job(document: _Document, reading: _Reading) -> JobDocument | None:
    """Read a job. The labels of the application are its own, too."""
    place, before = document.place, len(document.place.found)
    values = job_values(document.root, place, reading.user)
    if values is None:
        return None
    labels = _labels(values, reading)
    if len(place.found) > before or not document.sound:
        return None
    values.given["labels"] = labels
    named = {f"labels.{key}" for key in reading.labels} | set(_named(values.node))
    job = Document(job_of(values, reading.user), tuple(sorted(named)), limits_of(values))
    return JobDocument(job, place.found.source, document.root.line)


def _labels(values: Values, reading: _Reading) -> dict[str, str]:
    """Return the labels of a job with those of its application. Too many are reported."""
    labels = {**reading.labels, **values.given.get("labels", {})}
    if len(labels) > LABELS_MAX:
        message = f"with those of its application, {len(labels)} labels; at most {LABELS_MAX} are allowed"
        values.report("labels", message)
    return labels


def _read_cron(document: _Document, reading: _Reading) -> CronSpec | None:
    """Read a cron."""
    place, before = document.place, len(document.place.found)
    values = cron_values(document.root, place, reading.user)
    labels: dict[str, str] = {}
    if values is not None and "app" not in values.given:  # its stages have theirs already
        labels = _labels(values, reading)
    if values is None or len(place.found) > before or not document.sound:
        return None
    if labels:
        values.given["labels"] = labels
    return cron_of(values, reading.user)


def _named(root: Mapping) -> list[str]:
    named: list[str] = []
    for key, node in root.items:
        if key.text in PART_BY_PART and isinstance(node, Mapping):
            named += [f"{key.text}.{name.text}" for name, _ in node.items]
        elif key.text != VARS:
            named.append(key.text)
    return named


_JOB_KINDS = tuple(str(kind) for kind in JobKind)
_READERS: dict[str, Callable[[_Document, _Reading], Any]] = {
    APP_KIND: _read_app,
    **dict.fromkeys(_JOB_KINDS, _read_job),
    CronKind.CRON: _read_cron,
}
"""What reads a document of each kind: it reports mistakes at the document's place, and returns what the
document says, or None where it says nothing right."""
