"""``/v1/checkpoints``: list, make, take in, look into, verify, hand out, delete."""

import re

from litestar import Response, get, post

from borgish.api.asked import Asked
from borgish.api.auth import POLICY, Policy
from borgish.api.openapi import GIVES, TAKES
from borgish.api.parameters import AsName, Position, WithJournal
from borgish.cell.room import check_ample, check_writable
from borgish.errors import Invalid
from borgish.vocabulary import CHECKPOINT_FILE_BYTES_MAX, CHECKPOINT_NAME_PATTERN
from borgish.wire.api import CheckpointView
from borgish.wire.api_past import (
    CheckpointDetail,
    CheckpointList,
    CheckpointRequest,
    CheckpointVerdict,
    Imported,
)

_NAME = re.compile(CHECKPOINT_NAME_PATTERN, re.ASCII)


@get("/v1/checkpoints", opt={POLICY: Policy.READ})
async def list_checkpoints(request: Asked) -> CheckpointList:
    """List the kept checkpoints, newest first."""
    return CheckpointList(tuple(await request.services.keeper.listed()))


@post("/v1/checkpoints", opt={POLICY: Policy.ADMIN, TAKES: CheckpointRequest}, status_code=201)
async def create_checkpoint(request: Asked) -> CheckpointView:
    """Make a checkpoint now. One with a name stays until it is deleted."""
    name = (await request.json_as(CheckpointRequest)).name
    if name:
        _check_name(name)
    return await request.services.checkpointer.make(f"asked for by {request.user.name}", name)


@post(
    "/v1/checkpoints/import",
    opt={POLICY: Policy.ADMIN, TAKES: "checkpoint file"},
    status_code=201,
    request_max_body_size=CHECKPOINT_FILE_BYTES_MAX,
)
async def import_checkpoint(request: Asked, name: AsName = "") -> Imported:
    """Keep a checkpoint that was exported. The body is the file; it has to be of this cell's own history."""
    if name:
        _check_name(name)
    file, services = await request.body(), request.services
    check_ample(services.room())
    head = await services.reader.read(lambda reading: reading.cell.position)
    return await services.keeper.take_in(file, name, head, request.user.name)


@get("/v1/checkpoints/{position:int}", opt={POLICY: Policy.ADMIN})
async def show_checkpoint(request: Asked, position: Position) -> CheckpointDetail:
    """Show a checkpoint and what is in it."""
    return await request.services.keeper.detail(position)


@post("/v1/checkpoints/{position:int}/verify", opt={POLICY: Policy.ADMIN}, status_code=200)
async def verify_checkpoint(request: Asked, position: Position) -> CheckpointVerdict:
    """Say whether a cell can be started from a checkpoint."""
    return await request.services.keeper.verify(position)


@get(
    "/v1/checkpoints/{position:int}/body", opt={POLICY: Policy.ADMIN, GIVES: {"application/octet-stream": {}}}
)
async def checkpoint_body(
    request: Asked, position: Position, journal: WithJournal = False
) -> Response[bytes]:
    """Hand out a checkpoint: a mark, a line of JSON with its SHA-256, and the body as stored."""
    head = await request.services.reader.read(lambda reading: reading.cell.position)
    file = await request.services.keeper.file(position, head if journal else 0)
    return Response(file, media_type="application/octet-stream")


@post("/v1/checkpoints/{position:int}/delete", opt={POLICY: Policy.ADMIN}, status_code=200)
async def delete_checkpoint(request: Asked, position: Position) -> CheckpointView:
    """Let go of a checkpoint. The last good one stays."""
    check_writable(request.services.room())
    return await request.services.keeper.delete(position, request.user.name)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{name[:63]!r} cannot be the name of a checkpoint",
            "Take at most 63 of a-z, 0-9 and -, the first a letter, the last no -; not 'all' or 'now'",
        )


CHECKPOINTS = (
    list_checkpoints,
    create_checkpoint,
    import_checkpoint,
    show_checkpoint,
    verify_checkpoint,
    checkpoint_body,
    delete_checkpoint,
)
