"""``/v1/checkpoints``: list them, make one."""

from litestar import get, post

from borgish.api.asked import Asked
from borgish.api.auth import POLICY, Policy
from borgish.wire.api import CheckpointList, CheckpointView


@get("/v1/checkpoints", opt={POLICY: Policy.READ})
async def list_checkpoints(request: Asked) -> CheckpointList:
    """List the kept checkpoints, newest first."""
    return CheckpointList(tuple(await request.gateway.checkpoints()))


@post("/v1/checkpoints", opt={POLICY: Policy.ADMIN}, status_code=201)
async def create_checkpoint(request: Asked) -> CheckpointView:
    """Make a checkpoint now."""
    return await request.gateway.checkpoint(f"asked for by {request.user.name}")


CHECKPOINTS = (list_checkpoints, create_checkpoint)
