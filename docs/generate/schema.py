"""The page of the job file, from its JSON Schema, and values of any schema in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from borgish.bands import DEFAULT_BANDS
from borgish.spec.cron import file_schema
from docs.generate.linked import ROOT
from docs.generate.markdown import code, page, prose, table

Schema = Mapping[str, Any]
WORDS_MAX = 16  # that are written out
_VARIABLE = r"\{\{ *var\."  # a reference to a variable may stand at most places: the page says so once


def job_file() -> str:
    """Return the page of what can be written in a job file."""
    cron, app, job = _documents(file_schema(DEFAULT_BANDS))
    own = {name: field for name, field in cron["properties"].items() if name not in job["properties"]}
    own["kind"] = cron["properties"]["kind"]
    return page(
        "# Job file",
        "A file in YAML, JSON or Jsonnet that says what is to run. `borgctl job check FILE` names every "
        "mistake in one, and `borgctl schema` prints this as JSON Schema, for editors. Wherever a value "
        "stands, a variable may: `{{var.NAME}}`, see [variables](../how-to/documents.md#variables).",
        "## A job",
        prose(job["description"]),
        *_fields("", job, 3),
        "## A cron",
        f"{prose(cron['description'])} It has the fields of a job, and `kind: cron` with these:",
        *_fields("", {"properties": own, "required": cron["required"]}, 3),
        "## An application",
        "What several jobs have in common, which stand with it in one file.",
        *_fields("", app, 3),
        "## Examples",
        table(("file", "shows"), _examples()),
    )


def _documents(schema: Schema) -> tuple[Schema, Schema, Schema]:
    """Return the schemas of a cron, an application and a job, which are told apart by ``kind``."""
    return schema["then"], schema["else"]["then"], schema["else"]["else"]


def _fields(path: str, schema: Schema, level: int) -> Iterator[str]:
    """Return a table of the fields of a record, and then one for each record inside it."""
    required = schema.get("required", ())
    rows = [
        (
            code(name) + (" *" if name in required else ""),
            value(field, f"{path}{name}"),
            prose(field.get("description", "")),
        )
        for name, field in schema["properties"].items()
    ]
    yield table(("field", "value", "says"), rows)
    if required:
        yield "\\* must be given"
    for name, field in schema["properties"].items():
        if (inside := _record(field)) is not None:
            yield f"{'#' * level} {path}{name}"
            yield from _fields(f"{path}{name}.", inside, level)


def _record(schema: Schema) -> Schema | None:
    """Return the record that a value is, or that is in it; None where there is none."""
    if "properties" in schema:
        return schema
    for inside in (*_choices(schema), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inside, Mapping) and (found := _record(inside)) is not None:
            return found
    return None


def _choices(schema: Schema) -> list[Schema]:
    return [each for each in schema.get("anyOf", ()) if each.get("pattern") != _VARIABLE]


def value(schema: Schema, path: str = "") -> str:
    """Return in words what a value may be. ``path`` is the heading of its own table, if it has one."""
    if choices := _choices(schema):
        return " or ".join(filter(None, dict.fromkeys(value(each, path) for each in choices)))
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        words = [code(str(each)) for each in schema["enum"]]
        return ", ".join(words) if len(words) <= WORDS_MAX else f"one of {len(words)} words, as {words[0]}"
    if "const" in schema:
        return code(str(schema["const"]).lower() if isinstance(schema["const"], bool) else schema["const"])
    kinds = schema.get("type", "any value")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(_of_kind(kind, schema, path) for kind in kinds if kind != "null")


def _of_kind(kind: str, schema: Schema, path: str) -> str:
    match kind:
        case "object" if "properties" in schema:
            return f"[{path}](#{path.replace('.', '')})" if path else "record"
        case "object":
            inside = schema.get("additionalProperties")
            return f"map to {value(inside, path)}" if isinstance(inside, Mapping) else "map"
        case "array":
            inside = schema.get("items")
            return f"list of {value(inside, path)}" if isinstance(inside, Mapping) else "list"
        case "integer" | "number":
            return ("whole number" if kind == "integer" else "number") + _bounds(schema)
        case "string":
            return "text"
        case "boolean":
            return "`true`, `false`"
    return kind


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None and high < 10**9:
        return f", {low:g} to {high:,g}" if high < 10**6 else f", {low:g} to {high:,}"
    if low is not None:
        return f", at least {low:g}"
    return f", above {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else ""


def _examples() -> Iterator[tuple[str, str]]:
    """Return each example with the sentence with which it begins."""
    for path in sorted((ROOT / "configs" / "jobs").iterdir()):
        first = next((line for line in path.read_text().splitlines() if line.startswith("#")), "#")
        yield f"[{path.name}](../../configs/jobs/{path.name})", prose(first.lstrip("# "))
