"""``/v1/checkpoints`` and ``/v1/rollback``: keep the cell as it is, look at what is kept, and go back."""

import re

from litestar import Response, get, post

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import AT_LEAST, LEADER_ONLY, READ_IS_AUDITED, Moment, read_moment
from borgish.api.openapi import CONSUMES, PRODUCES
from borgish.api.parameters import CheckpointName, Position, WithJournal, checked_affected
from borgish.api.request import ApiRequest
from borgish.cell.free_space import check_ample, check_writable
from borgish.errors import Invalid
from borgish.vocabulary import CHECKPOINT_FILE_BYTES_MAX, CHECKPOINT_NAME_PATTERN, NAME_PATTERN
from borgish.wire.api import Accepted, CheckpointView
from borgish.wire.api_past import (
    CheckpointDetail,
    CheckpointList,
    CheckpointRequest,
    CheckpointVerdict,
    Imported,
    RollbackPlan,
    RollbackRequest,
)

_NAME = re.compile(CHECKPOINT_NAME_PATTERN, re.ASCII)


@get("/v1/checkpoints", opt={POLICY: Policy.READ, AT_LEAST: True})
async def list_checkpoints(request: ApiRequest) -> CheckpointList:
    """List the kept checkpoints, newest first."""
    as_of = await request.shown_as_of()
    return CheckpointList(tuple(await request.services.keeper.listed()), as_of)


@post("/v1/checkpoints", opt={POLICY: Policy.ADMIN, CONSUMES: CheckpointRequest}, status_code=201)
async def create_checkpoint(request: ApiRequest) -> CheckpointView:
    """Make a checkpoint now. One with a name stays until it is deleted."""
    name = (await request.json_as(CheckpointRequest)).name
    if name:
        _check_name(name)
    await request.note("create checkpoint", name)
    return await request.services.checkpointer.make(f"asked for by {request.user.name}", name)


@post(
    "/v1/checkpoints/import",
    opt={POLICY: Policy.ADMIN, CONSUMES: "checkpoint file"},
    status_code=201,
    request_max_body_size=CHECKPOINT_FILE_BYTES_MAX,
)
async def import_checkpoint(request: ApiRequest, name: CheckpointName = "") -> Imported:
    """Keep a checkpoint that was exported. The body is the file; it has to be of this cell's own history."""
    if name:
        _check_name(name)
    file, services = await request.body(), request.services
    check_ample(services.free_space())
    head = await services.reader.read(lambda reading: reading.cell.position)
    await request.note("import checkpoint", name)
    return await services.keeper.take_in(file, name, head, request.user.name)


@get("/v1/checkpoints/{position:int}", opt={POLICY: Policy.ADMIN, AT_LEAST: True})
async def show_checkpoint(request: ApiRequest, position: Position) -> CheckpointDetail:
    """Show a checkpoint and what is in it."""
    await request.shown_as_of()  # which has, or refuses, the position that is asked for
    return await request.services.keeper.detail(position)


@post("/v1/checkpoints/{position:int}/verify", opt={POLICY: Policy.ADMIN}, status_code=200)
async def verify_checkpoint(request: ApiRequest, position: Position) -> CheckpointVerdict:
    """Say whether a cell can be started from a checkpoint."""
    return await request.services.keeper.verify(position)


@get(
    "/v1/checkpoints/{position:int}/body",
    opt={
        POLICY: Policy.ADMIN,
        PRODUCES: {"application/octet-stream": {}},
        LEADER_ONLY: READ_IS_AUDITED,
    },
)
async def checkpoint_body(
    request: ApiRequest, position: Position, journal: WithJournal = False
) -> Response[bytes]:
    """Hand out a checkpoint: a mark, a line of JSON with its SHA-256, and the body as stored."""
    head = await request.services.reader.read(lambda reading: reading.cell.position)
    await request.note("export checkpoint", str(position))
    file = await request.services.keeper.file(position, head if journal else 0)
    return Response(file, media_type="application/octet-stream")


@post("/v1/checkpoints/{position:int}/delete", opt={POLICY: Policy.ADMIN}, status_code=200)
async def delete_checkpoint(request: ApiRequest, position: Position) -> CheckpointView:
    """Let go of a checkpoint. The last good one stays."""
    check_writable(request.services.free_space())
    await request.note("delete checkpoint", str(position))
    return await request.services.keeper.delete(position, request.user.name)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"invalid checkpoint name {name[:63]!r}",
            "Use at most 63 of a-z, 0-9 and -, a letter first and no - last; not 'all' or 'now'",
        )


_JOB = re.compile(f"{NAME_PATTERN}/{NAME_PATTERN}", re.ASCII)
ONLY_MAX = 1000
ROLLBACK_BYTES_MAX = 256 * 1024  # so many names fit


@post(
    "/v1/rollback/plan",
    opt={POLICY: Policy.ADMIN, CONSUMES: RollbackRequest},
    status_code=200,
    request_max_body_size=ROLLBACK_BYTES_MAX,
)
async def plan_rollback(request: ApiRequest) -> RollbackPlan:
    """Say what a rollback would do, done now. Nothing is changed."""
    asked, moment = await _rollback_of(request)
    return await request.services.rollbacks.plan(moment, asked)


@post(
    "/v1/rollback",
    opt={POLICY: Policy.ADMIN, CONSUMES: RollbackRequest},
    status_code=200,
    request_max_body_size=ROLLBACK_BYTES_MAX,
)
async def roll_back(request: ApiRequest) -> Accepted:
    """Make the cell what it was to be at a moment: one new event, on a new timeline."""
    asked, moment = await _rollback_of(request)
    request_id, digest = request.request_id, await request.digest()
    request.services.expect_obeyed()
    return await request.services.rollbacks.roll_back(moment, asked, request.asker, request_id, digest)


async def _rollback_of(request: ApiRequest) -> tuple[RollbackRequest, Moment]:
    asked = await request.json_as(RollbackRequest)
    for job in asked.only:
        if not _JOB.fullmatch(job):
            raise Invalid(f"only: '{job[:130]}' is not the full name of a job", "Write it like ann/web")
    if len(asked.only) > ONLY_MAX:
        raise Invalid(f"only must name at most {ONLY_MAX} jobs", "Name none for the whole cell")
    checked_affected(asked)
    now = await request.read(lambda reading: reading.now.wall)
    return asked, read_moment(asked.to, now)


CHECKPOINTS = (
    list_checkpoints,
    create_checkpoint,
    import_checkpoint,
    show_checkpoint,
    verify_checkpoint,
    checkpoint_body,
    delete_checkpoint,
    plan_rollback,
    roll_back,
)
