"""``borgctl job check``: what is wrong in files, or what they say."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import typer
import yaml

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.cli.commands.submit import show_found, show_times, written
from borgish.cli.errors import DONE, USAGE, print_note
from borgish.cli.render import Form, as_json, as_json_line
from borgish.cli.screen import print_out
from borgish.cli.session import Session
from borgish.cli.sources import Loaded, load
from borgish.errors import Invalid, Mistake
from borgish.spec.cron import CronSpec
from borgish.spec.file.documents import Documents, check_documents
from borgish.spec.file.mistakes import out_of_reach, quote, resource_typos
from borgish.spec.file.variables import Variable
from borgish.spec.file.write import app_file, write_file
from borgish.text import plural, safe
from borgish.vocabulary import VariableType


class Checked(msgspec.Struct, frozen=True):
    """What files say, and all that is wrong with them. ``documents``: those without mistakes; None where
    there is no file."""

    loaded: Loaded
    documents: Documents | None
    mistakes: tuple[Mistake, ...]
    bands: Bands


def read_paths(session: Session, paths: Sequence[Path], user: str, variables: Mapping[str, str]) -> Checked:
    """Read all documents of all files. The cell is asked for its bands only where the usual are not meant."""
    loaded = load(paths, variables)
    bands, given = DEFAULT_BANDS, loaded.left(variables)
    documents, found = check_documents(loaded.sources, user, bands, given) if loaded.sources else (None, ())
    if any(mistake.path.rpartition(".")[2] == "priority" for mistake in found):
        bands = session.bands() or DEFAULT_BANDS
        documents, found = check_documents(loaded.sources, user, bands, given)
    return Checked(loaded, documents, (*loaded.mistakes, *loaded.located(found)), bands)


def check_paths(
    session: Session, paths: Sequence[Path], user: str, variables: Mapping[str, str], form: Form
) -> int:
    """Say of all documents of all files whether they are right, with all mistakes; return the exit code."""
    if form is Form.CSV or form.template:
        raise typer.BadParameter("files are shown as yaml, json or jsonl", param_hint="--output")
    checked = read_paths(session, paths, user or session.who_asks(), variables)
    documents, mistakes, bands = checked.documents, checked.mistakes, checked.bands
    if documents is not None and form in (Form.JSON, Form.YAML, Form.JSONL) and not mistakes:
        texts = [write_file(app_file(documents.app))] if documents.app else []
        texts += (written(each.spec, bands) for each in documents.in_order)
        print_out(_documents(texts, form))
    elif documents is not None:
        _show(documents, form)
    if mistakes:
        show_found(Invalid("", mistakes=mistakes), "")
    return USAGE if mistakes else DONE


def _documents(texts: Sequence[str], form: Form) -> str:
    if form is Form.YAML:
        return "---\n".join(texts)
    read = list(map(yaml.safe_load, texts))
    return as_json(read) if form is Form.JSON else "\n".join(map(as_json_line, read))


def _show(documents: Documents, form: Form) -> None:
    if form is Form.NAME:
        print_out("\n".join(each.spec.key for each in documents.in_order))
        return
    if app := documents.app:
        print_out(f"app {app.key}: valid")
    for each in documents.in_order:
        spec, valid = each.spec, f"{safe(each.source)}: valid:"
        if isinstance(spec, CronSpec):
            what = f"{plural(spec.job.tasks, 'task')}, {spec.job.runtime}"
            print_out(f"{valid} cron {spec.key}, {f'runs {spec.app_key}' if spec.app else what}")
            show_times(spec)
            continue
        print_out(f"{valid} job {spec.key}, {plural(spec.tasks, 'task')}, {spec.runtime}")
        for text in (*(text for _, text in resource_typos(spec)), *out_of_reach(spec)):
            print_note(text)
    for variable in documents.variables:
        print_out(safe(f"{variable.source}:{variable.line}: variable {_in_words(variable)}"))


def _in_words(variable: Variable) -> str:
    default = "required" if variable.default is None else f"default {_value(variable, variable.default)}"
    choices = f", one of {', '.join(variable.choices)}" if variable.choices else ""
    about = f": {variable.help}" if variable.help else ""
    value = _value(variable, variable.value)
    return f"{variable.name} = {value} ({variable.type}, {default}{choices}){about}"


def _value(variable: Variable, value: str) -> str:
    return quote(value) if variable.type is VariableType.TEXT else value
