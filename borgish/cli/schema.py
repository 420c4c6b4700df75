"""``borgctl schema``: what a job file may say, for editors and checkers."""

from borgish.cli.commands import single

app = single()


@app.command()
def schema() -> None:
    """Print the JSON Schema of a job file."""
    from borgish.cli.render import as_json
    from borgish.cli.screen import data
    from borgish.spec.schema import job_schema

    data(as_json(job_schema()))
