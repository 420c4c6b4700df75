"""The pages of the reference, each made from the code that it is about."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast, get_args

import msgspec

import borgish.borglet.settings as borglet_settings
import borgish.master.host.settings as master_settings
from borgish import errors, vocabulary
from borgish.api.app import create_routes
from borgish.api.openapi import document
from borgish.api.services import Services
from borgish.api.views.history import COMMAND_WORDS
from borgish.cell import commands
from borgish.cell.access import commands as access_commands
from borgish.cell.events import AnyEvent
from borgish.cli import errors as borgctl_errors
from borgish.dashboard.columns import Role
from borgish.dashboard.help import help_lines
from borgish.master.health import Metrics
from docs.generate.commands import Command, programs
from docs.generate.linked import ROOT
from docs.generate.markdown import code, fenced, page, prose, table
from docs.generate.schema import job_file, value

_UP = "../../"  # from a page of the reference to the repository
_KEY_WIDTH = 17  # of a key in the lines of the dashboard's help
Remarks = dict[tuple[str, str], str]


def reference() -> dict[str, str]:
    """Return all pages of the reference by their place in ``docs``."""
    made: dict[str, Callable[[], str]] = {
        "words": _words,
        "job-file": job_file,
        "cell-toml": _cell_toml,
        "borglet-toml": _borglet_toml,
        "dashboard": _dashboard,
        "http-api": _http_api,
        "events": _events,
        "metrics": _metrics,
        "exit-codes": _exit_codes,
    }
    pages = {f"reference/{name}.md": make() for name, make in made.items()}
    return pages | {f"reference/{program.name}.md": _program(program) for program in programs()}


def _program(program: Command) -> str:
    return page(
        f"# {program.name}",
        prose(program.text),
        fenced(program.usage),
        _taken(program),
        *(part for command in program.inside for part in _commands(command, 2)),
    )


def _commands(command: Command, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {command.name}", prose(command.text), fenced(command.usage), _taken(command))
    for inside in command.inside:
        yield from _commands(inside, level + 1)


def _taken(command: Command) -> str:
    words = (*command.arguments, *command.options)
    return table(("argument or option", "says"), ((code(word.form), prose(word.about)) for word in words))


def _words() -> str:
    """The words of ``borgish.vocabulary``, and the closed sets among them with what their values say."""
    lines = inspect.getdoc(vocabulary) or ""
    defined = re.findall(r"^(\S.*?) {2,}(\S.*)$", lines, re.MULTILINE)
    sets = [
        part
        for name, found in inspect.getmembers(vocabulary, inspect.isclass)
        if found.__module__ == vocabulary.__name__
        for part in (f"### {name}", prose(_doc(found)), _values(found))
    ]
    return page(
        "# Words",
        "Code, output, database and these documents use these words for these things.",
        table(("word", "is"), ((f"**{word}**", prose(about)) for word, about in defined)),
        "## Closed sets",
        "Values of which there are no others, as they stand in job files, output, tables and the HTTP API.",
        *sets,
    )


def _values(found: type) -> str:
    rows = re.findall(r'^ +[A-Z_]+ = "([^"]*)"(?:  # (.*))?$', inspect.getsource(found), re.MULTILINE)
    if any(about for _, about in rows):
        return table(("value", "is"), ((code(word), prose(about)) for word, about in rows))
    return ", ".join(code(word) for word, _ in rows)


def _cell_toml() -> str:
    return _settings("cell.toml", "borgmaster", master_settings.Settings, master_settings.LIVE)


def _borglet_toml() -> str:
    return _settings("borglet.toml", "borglet", borglet_settings.File, borglet_settings.LIVE)


def _settings(name: str, daemon: str, kind: type[msgspec.Struct], live: tuple[str, ...]) -> str:
    """Return the page of a daemon's file: its keys by table, and then the example that shows all of them."""
    example = (ROOT / "configs" / name).read_text()
    shapes = msgspec.json.schema(kind)["$defs"]
    top = shapes[kind.__name__]
    tables = {key: shapes[shape] for key, field in top["properties"].items() if (shape := _shape(field))}
    plain = {key: field for key, field in top["properties"].items() if key not in tables}
    says = _remarks(example)
    return page(
        f"# {name}",
        f"What a [{daemon}]({daemon}.md) reads. A mistake in it ends the daemon with exit code 74 and is "
        "named with its key; a key that is not known is one. What counts at once is read again at SIGHUP: "
        "see [Change settings while it runs](../how-to/reload.md).",
        _keys("", {**top, "properties": plain}, live, says),
        *(part for key, shape in tables.items() for part in _table(key, shape, live, says)),
        "## The file",
        f"[configs/{name}]({_UP}configs/{name}) shows every key:",
        fenced(example, "toml"),
    )


def _shape(field: Mapping[str, Any]) -> str:
    """Return the name of the shape of a table in the file; "" for a key with a plain value."""
    found = [field, *field.get("anyOf", ())]
    return next((each["$ref"].rpartition("/")[2] for each in found if "$ref" in each), "")


def _table(name: str, shape: Mapping[str, Any], live: tuple[str, ...], says: Remarks) -> Iterator[str]:
    about = inspect.cleandoc(shape.get("description", ""))
    yield f"## [{name}]"
    yield "" if about.startswith("`") else prose(about)
    yield _keys(name, shape, live, says)


def _keys(name: str, shape: Mapping[str, Any], live: tuple[str, ...], says: Remarks) -> str:
    rows = [
        (
            code(key),
            "table" if "$ref" in field else value(field),
            "must be given" if key in shape["required"] else _default(field.get("default")),
            "at once" if {name, key, f"{name}.{key}"} & {*live} else "at the next start",
            prose(says.get((name, key), "")),
        )
        for key, field in shape["properties"].items()
    ]
    return table(("key", "value", "unless given", "a change counts", "says"), rows)


def _default(default: Any) -> str:
    return "" if default in (None, "", (), {}) else code(msgspec.json.encode(default).decode())


def _remarks(example: str) -> Remarks:
    """Return what the example of a file says behind its keys, by table and key."""
    found, table_ = Remarks(), ""
    for line in example.splitlines():
        if head := re.match(r"(?:# )?\[([a-z.]+)\]", line):
            table_ = head[1]
        elif remark := re.match(r"(?:# )?([a-z_]+) = .*?\s# (.*)$", line):
            found[table_, remark[1]] = remark[2]
    return found


def _dashboard() -> str:
    """The keys of the dashboard, in the words of its own help."""
    keys: dict[str, list[tuple[str, str]]] = {}
    for line, role in help_lines(80):
        if role is Role.TITLE:
            rows = keys.setdefault(line[:1] + line[1:].lower(), [])
        elif line.strip():
            rows.append((code(line[:_KEY_WIDTH].strip()), prose(line[_KEY_WIDTH:])))
    parts = [part for head, rows in keys.items() for part in (f"## {head}", table(("key", "does"), rows))]
    return page("# Keys of the dashboard", "What `?` shows in `borgctl dashboard`.", *parts)


def _http_api() -> str:
    described = document(create_routes(cast(Services, None)))
    parts: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        noun = path.removeprefix("/v1").strip("/").partition("/")[0]
        for method, operation in methods.items():
            parts.setdefault(noun, []).append(_operation(path, method, operation))
    return page(
        "# HTTP API",
        "All that `borgctl` and the dashboard do, they do by this. A request shows its token as "
        "`Authorization: Bearer TOKEN`. A master serves this description for programs, as OpenAPI 3.1, at "
        "`GET /v1/openapi.json`.",
        "An error is answered with problem details (RFC 9457), which have a hint, and of a job file every "
        "mistake with its line; [Exit codes](exit-codes.md) has the status of each. A change may carry an "
        "`Idempotency-Key`: asked again with it, the same has the same answer, and nothing is done twice.",
        "*Who may* is a policy: `read` is whoever may see the cell, `submit` who may have jobs, `own` who "
        "owns the job of the path, `operate` who looks after machines, `self` whoever has a token, about its "
        "own, `join` a machine that is to be in the cell, `open` everybody.",
        *(part for noun in sorted(parts) for part in (f"## {noun}", *parts[noun])),
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    parameters = [
        (
            code(each["name"]),
            each["in"],
            value(each.get("schema", {})),
            prose(each.get("description") or each.get("schema", {}).get("description", "")),
        )
        for each in operation["parameters"]
    ]
    body = operation.get("requestBody", {}).get("content", {})
    answer = next(each for status, each in operation["responses"].items() if status.startswith("2"))
    said = [
        f"Who may: {operation['description'].removeprefix('Policy: ')}.",
        f"Takes {_contents(body)}." if body else "",
        f"Answers {_contents(answer['content'])}." if answer.get("content") else "",
    ]
    return page(
        f"### {method.upper()} {path}".replace("{", "\\{"),
        prose(operation["summary"]),
        " ".join(filter(None, said)),
        table(("parameter", "in", "value", "says"), parameters),
    ).rstrip()


def _contents(content: Mapping[str, Any]) -> str:
    """Return what a body may be: the name of its shape, or its media type."""
    return " or ".join(
        f"{each['schema']['$ref'].rpartition('/')[2]} ({code(media)})"
        if "$ref" in each.get("schema", {})
        else code(media)
        for media, each in content.items()
    )


def _events() -> str:
    events = [event for each in get_args(AnyEvent) for event in (get_args(each) or (each,))]
    known = {
        name: found
        for module in (commands, access_commands)
        for name, found in inspect.getmembers(module, inspect.isclass)
    }
    rows = [
        (code(word), code(name), prose(_doc(known[name])) if name in known else "")
        for name, word in sorted(COMMAND_WORDS.items(), key=lambda item: item[1])
    ]
    shown = [(code(event.__name__), prose(_doc(event)), _names(event)) for event in events]
    return page(
        "# Events",
        "The journal's alphabet: everything that can happen to a cell. Names and fields are stored for good. "
        "`fauxmaster step` and `next` go through them, `borgctl archive export` writes them, and "
        "`borgctl events` tells them in words.",
        table(("event", "what happened", "fields"), shown),
        "## Words of the history",
        "In the column ASKED of `borgctl history`, for the command that was decided.",
        table(("word", "command", "asks"), rows),
    )


def _names(event: type) -> str:
    return ", ".join(code(name) for name in getattr(event, "__struct_fields__", ()))


def _metrics() -> str:
    registry = Metrics().registry
    rows = []
    for collector in registry._collector_to_names:
        (metric,) = cast(Any, collector).describe()
        labels = ", ".join(code(label) for label in getattr(collector, "_labelnames", ()))
        rows.append((code(metric.name), metric.type, labels, prose(metric.documentation)))
    return page(
        "# Metrics",
        "A master serves these at `GET /metrics`, as Prometheus reads them, to whoever has a token that may "
        "read. They are of the whole cell; none is by task, job or machine. What to do with them is in "
        "[Watch over a cell](../how-to/monitoring.md).",
        table(("metric", "type", "labels", "is"), sorted(rows)),
    )


def _exit_codes() -> str:
    found = [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.BorgishError) and error is not errors.BorgishError
    ]
    rows = [
        (str(error.exit_code), str(error.status), code(error.__name__), prose(_doc(error)))
        for error in sorted(found, key=lambda error: (error.exit_code, error.status, error.__name__))
    ]
    return page(
        "# Exit codes",
        "What to do about one is in [Find the trouble by an exit code](../how-to/troubleshooting.md).",
        "## borgctl",
        prose((inspect.getdoc(borgctl_errors) or "").partition("\n\n")[2]),
        "## Errors",
        "The HTTP API answers an error with its status, and a daemon ends for it with its exit code. "
        "`borgctl` ends with 1, 2 or 4.",
        table(("exit code", "HTTP status", "error", "is"), rows),
    )


def _doc(found: type) -> str:
    """Return what a class says of itself; "" for what it has from another."""
    return inspect.cleandoc(vars(found).get("__doc__") or "")
