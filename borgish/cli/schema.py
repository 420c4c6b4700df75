"""``borgctl schema``: what a job file may say, for editors and checkers."""

import typer

from borgish.cli.commands import single
from borgish.cli.session import session_of

app = single()


@app.command()
def schema(context: typer.Context) -> None:
    """Print the JSON Schema of a job file.

    It names the bands of the cell when that answers, else the usual ones."""
    from borgish.bands import DEFAULT_BANDS
    from borgish.cli.render import as_json
    from borgish.cli.screen import data
    from borgish.spec.fields import job_schema

    data(as_json(job_schema(session_of(context).bands() or DEFAULT_BANDS)))
