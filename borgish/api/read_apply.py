"""The body of an ``apply`` becomes a command, or an error that carries every mistake of all files."""

import msgspec

from borgish.api.parameters import checked_affected
from borgish.bands import Bands
from borgish.cell.commands import ApplyApp
from borgish.errors import Invalid
from borgish.spec.app import AppSpec
from borgish.spec.file.documents import Source, read_documents
from borgish.spec.file.kinds import Wrong, name_of
from borgish.wire.api_apps import ApplyRequest


def read_apply(body: bytes, caller: str, bands: Bands) -> ApplyApp:
    """Return what is to be applied; ``caller`` owns it where nothing says who does. Raises Invalid."""
    try:
        asked = msgspec.json.decode(body, type=ApplyRequest)
    except msgspec.MsgspecError as error:
        raise Invalid(f"invalid body: {error}", "`borgctl apply` sends what is right") from None
    except RecursionError:
        raise Invalid("the body is nested too deeply", "Send one JSON object") from None
    sources = [Source(source.name, source.text) for source in asked.sources]
    found = read_documents(sources, asked.user or caller, bands, asked.variables)
    name = asked.app or (found.app.name if found.app is not None else "")
    if not name:
        raise Invalid(
            "these jobs have no application",
            "add a document `{kind: app, name: NAME}`, or name it with --app NAME",
        )
    for option, given in (("app", name), ("user", found.user)):
        try:
            name_of(given)
        except Wrong as wrong:
            raise Invalid(f"{option}: {wrong.message}", wrong.hint) from None
    app = found.app or AppSpec(name, found.user)
    app = msgspec.structs.replace(app, name=name)
    documents = tuple(each.document for each in found.jobs)
    allowed = checked_affected(asked)
    return ApplyApp(app, documents, asked.prune, asked.take_over, allowed, found.crons)
