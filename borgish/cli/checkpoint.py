"""``borgctl checkpoint``: list, create."""

import typer

from borgish.cli.commands import noun
from borgish.cli.render import Form, FormOption, show_list
from borgish.cli.session import session_of
from borgish.cli.table import Column
from borgish.resources import show_bytes
from borgish.text import age, safe
from borgish.wire.api import CheckpointList, CheckpointView

app = noun("The whole cell, kept at a moment.")

CHECKPOINT_COLUMNS: tuple[Column[CheckpointView], ...] = (
    Column("POSITION", lambda checkpoint: str(checkpoint.position), right=True),
    Column("AGE", lambda checkpoint: age(checkpoint.at), right=True),
    Column("SIZE", lambda checkpoint: show_bytes(checkpoint.bytes), right=True),
    Column("SHA256", lambda checkpoint: checkpoint.sha256, wide=True),
    Column("REASON", lambda checkpoint: checkpoint.reason),
)


@app.command("list")
def list_(context: typer.Context, output: FormOption = Form.TABLE) -> None:
    """List the kept checkpoints, newest first."""
    items = session_of(context).client().get("/v1/checkpoints", None, CheckpointList).items
    show_list(items, CHECKPOINT_COLUMNS, output, lambda it: str(it.position), "no checkpoint yet")


@app.command()
def create(context: typer.Context) -> None:
    """Make a checkpoint now."""
    from borgish.cli.screen import data

    made = session_of(context).client().post("/v1/checkpoints", None, CheckpointView)
    data(f"checkpoint at position {made.position}, {show_bytes(made.bytes)}, sha256 {safe(made.sha256)}")
