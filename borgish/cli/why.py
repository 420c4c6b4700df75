"""``borgctl why``: why a task or a job is as it is."""

from typing import Annotated

import typer

from borgish.cli.commands import single
from borgish.cli.moments import AtOption, client_at
from borgish.cli.render import Form, FormOption, show_one
from borgish.wire.api import WhyView

app = single()


@app.command()
def why(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TASK-or-JOB", help="web/0, web, ann/web/0, ann/web")],
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Say why a task or a job is as it is."""
    from borgish.cli.names import find_subject
    from borgish.client import quoted

    client = client_at(context, at, output)
    view = client.get(quoted("why", *find_subject(client, name).split("/")), None, WhyView)
    show_one(view, output, view.name, lambda it, wide: explained(it, wide=wide))


def explained(view: WhyView, *, wide: bool) -> str:
    """Return the answer as people read it: the reason, the refusals, the tasks, what happened."""
    from borgish.cli.events import EVENT_COLUMNS
    from borgish.cli.missing import refusal_lines
    from borgish.cli.table import draw
    from borgish.cli.task_view import TASK_COLUMNS
    from borgish.cli.text import state_text
    from borgish.text import safe, safe_lines

    parts = [f"{safe(view.name)} is {state_text(view.state, view.outcome)}: {safe_lines(view.text)}\n"]
    if view.refusals:
        parts.append("\n".join(line for refusal in view.refusals for line in refusal_lines(refusal)) + "\n")
    if view.tasks:
        parts.append(draw(view.tasks, [c for c in TASK_COLUMNS if wide or not c.wide]))
    if view.events:
        parts.append(draw(view.events, [c for c in EVENT_COLUMNS if wide or not c.wide]))
    return "\n".join(parts)
