"""``borgctl checkpoint``: list, create, show, verify, export, import, delete."""

import errno
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import client_at
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.listing import LimitOption, Listing, WatchOption, columns_option, sort_option
from borgish.cli.render import Column, Form, FormOption, age_column, fields, show_list, show_one
from borgish.cli.session import noun, session_of
from borgish.durable import whole_file
from borgish.errors import Conflict, NotFound, TooLarge
from borgish.resources import show_bytes
from borgish.text import age, safe
from borgish.vocabulary import CHECKPOINT_FILE_BYTES_MAX
from borgish.wire.api import CheckpointView
from borgish.wire.api_past import (
    CheckpointDetail,
    CheckpointList,
    CheckpointRequest,
    CheckpointVerdict,
    Imported,
)

if TYPE_CHECKING:
    from borgish.client import Client

app = noun("Snapshots of the whole cell.")

ALL = "all"
SECONDS_MAX = 120.0  # a large one takes its time
_SHOWN_MAX = 8
Which = Annotated[
    str,
    typer.Argument(
        metavar="POSITION-or-NAME",
        help="Position or name of the checkpoint.",
        autocompletion=complete.checkpoints,
    ),
]


def _style(checkpoint: CheckpointView) -> str:
    return "red" if checkpoint.problem else ""


CHECKPOINT_COLUMNS: tuple[Column[CheckpointView], ...] = (
    Column("POSITION", lambda checkpoint: str(checkpoint.position), right=True),
    Column("NAME", lambda checkpoint: checkpoint.name),
    age_column("AGE", lambda checkpoint: checkpoint.at),
    Column(
        "SIZE",
        lambda checkpoint: show_bytes(checkpoint.bytes),
        right=True,
        by=lambda checkpoint: checkpoint.bytes,
    ),
    Column("SHA256", lambda checkpoint: checkpoint.sha256, wide=True),
    Column("REASON", lambda checkpoint: checkpoint.problem or checkpoint.reason, _style),
)
VERDICT_COLUMNS: tuple[Column[CheckpointVerdict], ...] = (
    Column("POSITION", lambda verdict: str(verdict.position), right=True),
    Column("NAME", lambda verdict: verdict.name),
    Column(
        "GOOD",
        lambda verdict: "yes" if verdict.good else "no",
        lambda verdict: "green" if verdict.good else "red",
    ),
    Column("WHAT", lambda verdict: verdict.text),
)


class CheckpointState(StrEnum):
    """Whether a cell could be started from a checkpoint, as far as is known without reading it."""

    GOOD = "good"
    BAD = "bad"


def _state(checkpoint: CheckpointView) -> CheckpointState:
    return CheckpointState.BAD if checkpoint.problem else CheckpointState.GOOD


@app.command("list")
def list_(
    context: typer.Context,
    state: Annotated[
        CheckpointState | None, typer.Option("--state", help="Only checkpoints in this state.")
    ] = None,
    sort: Annotated[str, sort_option(lambda: CHECKPOINT_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: CHECKPOINT_COLUMNS)] = "",
    limit: LimitOption = None,
    watch: WatchOption = False,
    output: FormOption = Form.TABLE,
) -> None:
    """List the kept checkpoints, newest first."""
    client = client_at(context, "", output)
    Listing(
        items=lambda: (it for it in _kept(client) if state in (None, _state(it))),
        columns=CHECKPOINT_COLUMNS,
        form=output,
        name=lambda it: str(it.position),
        none="no such checkpoints" if state else "no checkpoints yet",
        chosen=columns,
        sort=sort,
        limit=limit,
        client=client,
        kinds="event",
    ).show(watch=watch)


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Option("--name", help="Keep it under this name until it is deleted.")] = "",
) -> None:
    """Make a checkpoint now."""
    from borgish.cli.screen import print_out

    client = session_of(context).client(SECONDS_MAX)
    made = client.post("/v1/checkpoints", CheckpointRequest(name), CheckpointView)
    print_out(f"checkpoint{_named(made)} at position {made.position}, {_size(made)}")


@app.command()
def show(context: typer.Context, which: Which, output: FormOption = Form.TABLE) -> None:
    """Show one checkpoint and what is in it."""
    client = client_at(context, "", output, seconds=SECONDS_MAX)
    detail = client.get(_path(find_checkpoint(client, which)), None, CheckpointDetail)
    show_one(detail, output, str(detail.checkpoint.position), lambda it, _: checkpoint_in_full(it))


@app.command()
def verify(
    context: typer.Context,
    which: Annotated[
        str, typer.Argument(metavar="[POSITION-or-NAME|all]", help="Checkpoints to verify. Default: all.")
    ] = ALL,
    output: FormOption = Form.TABLE,
) -> None:
    """Say whether the cell could be started from a checkpoint: exit code 1 when from any it could not."""
    client = session_of(context).client(SECONDS_MAX)
    chosen = _kept(client) if which == ALL else [find_checkpoint(client, which)]
    verdicts = [client.post(_path(it) + "/verify", None, CheckpointVerdict) for it in chosen]
    show_list(verdicts, VERDICT_COLUMNS, output, lambda it: str(it.position), "no checkpoints yet")
    if not all(verdict.good for verdict in verdicts):
        raise typer.Exit(1)


@app.command()
def export(
    context: typer.Context,
    which: Which,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, readable by you only.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    journal: Annotated[
        bool, typer.Option("--with-journal", help="Include the journal from there until now.")
    ] = False,
) -> None:
    """Write a checkpoint to a file, which `fauxmaster` opens."""
    from borgish.cli.screen import print_err, print_out
    from borgish.wire.checkpoint_file import unpack_checkpoint

    expect_usable(file, force=force)
    client = session_of(context).client(SECONDS_MAX)
    chosen = find_checkpoint(client, which)
    content = client.raw("GET", _path(chosen) + "/body", {"journal": "true"} if journal else None)
    header, _ = unpack_checkpoint(content)  # what is damaged is not passed on
    write_exported(file, content, force=force)
    part = header.journal
    after = f", with the journal up to {max(part.last, header.position)}," if part else ""
    print_out(
        f"wrote the checkpoint{_named(chosen)} at position {chosen.position}{after} to {safe(str(file))}"
    )
    print_err("not in it: the cell's authority and `secret`; `borgctl cell seal FILE` takes these")


@app.command("import")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `checkpoint export` wrote.")],
    name: Annotated[
        str, typer.Option("--name", help="Keep it under this name. Default: the one it had.")
    ] = "",
) -> None:
    """Take a checkpoint back in, of this cell's own history: to read --at it. Nothing is overwritten."""
    from borgish.cli.screen import print_err, print_out
    from borgish.wire.checkpoint_file import unpack_checkpoint

    content = read_exported(file)
    unpack_checkpoint(content)  # what is damaged need not be sent
    client = session_of(context).client(SECONDS_MAX)
    params = {"name": name}
    found = client.post(
        "/v1/checkpoints/import", content, Imported, "", params, content_type="application/octet-stream"
    )
    taken = found.checkpoint
    print_out(f"imported the checkpoint{_named(taken)} at position {taken.position}, {_size(taken)}")
    if found.text:
        print_err(f"note: {found.text}")


@app.command()
def delete(context: typer.Context, which: Which, yes: YesOption = False) -> None:
    """Delete a checkpoint. The last good one stays."""
    from borgish.cli.screen import print_out

    client = session_of(context).client(SECONDS_MAX)
    found = find_checkpoint(client, which)
    loss = f"This deletes the checkpoint{_named(found)} at position {found.position}, {age(found.at)} old."
    confirm(loss, yes=yes)
    gone = client.post(_path(found) + "/delete", None, CheckpointView)
    print_out(f"deleted the checkpoint{_named(gone)} at position {gone.position}, {_size(gone)}")


def find_checkpoint(client: "Client", text: str) -> CheckpointView:
    """Return the kept checkpoint with this position or name. Raises NotFound."""
    return match_checkpoint(text, _kept(client))


def match_checkpoint(text: str, kept: Sequence[CheckpointView]) -> CheckpointView:
    """Return the one with this position or name. Raises NotFound."""
    for one in kept:
        if text in (str(one.position), one.name) and text:
            return one
    there = ", ".join(one.name or str(one.position) for one in kept[:_SHOWN_MAX])
    more = f" and {len(kept) - _SHOWN_MAX} more" if len(kept) > _SHOWN_MAX else ""
    raise NotFound(
        f"there is no checkpoint '{text}'",
        f"There are: {there}{more}" if kept else "There are none yet: `borgctl checkpoint create` makes one",
    )


def checkpoint_in_full(detail: CheckpointDetail) -> str:
    """Return one checkpoint as people read it."""
    kept, found = detail.checkpoint, detail.contents
    about = [
        ("position", str(kept.position)),
        ("name", kept.name),
        ("made", f"{kept.at}, {age(kept.at)} ago"),
        ("reason", kept.reason),
        ("size", show_bytes(kept.bytes)),
        ("sha256", kept.sha256),
        ("problem", detail.problem),
    ]
    if found is not None:
        tasks = f"{found.tasks}: {found.pending} pending, {found.running} running, {found.dead} dead"
        about += [
            ("timeline", f"{found.timeline}, epoch {found.epoch}"),
            ("machines", f"{found.machines_up} of {found.machines} up"),
            ("jobs", str(found.jobs)),
            ("tasks", f"{tasks} ({found.finished} finished)" if found.finished else tasks),
        ]
    return fields(about)


def _kept(client: "Client") -> Sequence[CheckpointView]:
    return client.get("/v1/checkpoints", None, CheckpointList).items


def _path(checkpoint: CheckpointView) -> str:
    return f"/v1/checkpoints/{checkpoint.position}"


def _named(checkpoint: CheckpointView) -> str:
    return f" {safe(checkpoint.name)}" if checkpoint.name else ""


def _size(checkpoint: CheckpointView) -> str:
    return f"{show_bytes(checkpoint.bytes)}, sha256 {safe(checkpoint.sha256)}"


# Exported files: for their owner only, and there in whole or not at all.


def expect_usable(file: Path, *, force: bool) -> None:
    """Raise Conflict when something is there already, and is not to be written over; NotFound where there is
    no folder for it; OSError for a folder.
    """
    if not file.parent.is_dir():
        raise NotFound(f"{file.parent}: there is no such folder", "Create it first, or name another file")
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if os.path.lexists(file) and not force:
        raise _taken(file)


def write_exported(file: Path, content: bytes, *, force: bool) -> None:
    """Write a file with mode 0600, all of it at once; over another one only with ``force``.

    Raises Conflict, and OSError for what the system refuses.
    """
    try:
        with whole_file(file, replaces=force) as opened:
            opened.write(content)
    except FileExistsError:
        raise _taken(file) from None


def read_exported(file: Path) -> bytes:
    """Return what such a file holds. Raises TooLarge, and OSError for what the system refuses."""
    with file.open("rb") as opened:
        content = opened.read(CHECKPOINT_FILE_BYTES_MAX + 1)
    if len(content) > CHECKPOINT_FILE_BYTES_MAX:
        raise TooLarge(
            f"{file} is larger than any checkpoint: over {CHECKPOINT_FILE_BYTES_MAX} bytes",
            "Name a file that `borgctl checkpoint export` wrote",
        )
    return content


def _taken(file: Path) -> Conflict:
    return Conflict(
        f"{file} already exists",
        "Name another file, or remove that one; `checkpoint export` has --force for it",
    )
