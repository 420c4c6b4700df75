"""``/v1/rollback``: what it would do, and to do it."""

import re

from litestar import post

from borgish.api.asked import Asked
from borgish.api.auth import POLICY, Policy
from borgish.api.moments import Moment, read_moment
from borgish.api.openapi import TAKES
from borgish.errors import Invalid
from borgish.vocabulary import NAME_PATTERN
from borgish.wire.api import Accepted
from borgish.wire.api_past import RollbackPlan, RollbackRequest

_JOB = re.compile(f"{NAME_PATTERN}/{NAME_PATTERN}", re.ASCII)
ONLY_MAX = 1000
ROLLBACK_BYTES_MAX = 256 * 1024  # so many names fit


@post(
    "/v1/rollback/plan",
    opt={POLICY: Policy.ADMIN, TAKES: RollbackRequest},
    status_code=200,
    request_max_body_size=ROLLBACK_BYTES_MAX,
)
async def plan_rollback(request: Asked) -> RollbackPlan:
    """Say what a rollback would do, done now. Nothing is changed."""
    asked, moment = await _read(request)
    return await request.services.rollbacks.plan(moment, asked)


@post(
    "/v1/rollback",
    opt={POLICY: Policy.ADMIN, TAKES: RollbackRequest},
    status_code=200,
    request_max_body_size=ROLLBACK_BYTES_MAX,
)
async def roll_back(request: Asked) -> Accepted:
    """Make the cell what it was to be at a moment: one new event, on a new timeline."""
    asked, moment = await _read(request)
    request_id, digest = request.request_id, await request.digest()
    request.services.expect_obeyed()
    return await request.services.rollbacks.roll_back(moment, asked, request.user.name, request_id, digest)


async def _read(request: Asked) -> tuple[RollbackRequest, Moment]:
    asked = await request.json_as(RollbackRequest)
    for job in asked.only:
        if not _JOB.fullmatch(job):
            raise Invalid(f"only: '{job[:130]}' is not the full name of a job", "Write it like ann/web")
    if len(asked.only) > ONLY_MAX:
        raise Invalid(f"only names more than {ONLY_MAX} jobs", "Name none for the whole cell")
    if asked.yes_stop is not None and asked.yes_stop < 0:
        raise Invalid("yes_stop is below 0", "Say how many running tasks may be stopped")
    now = await request.read(lambda reading: reading.now.wall)
    return asked, read_moment(asked.to, now)


ROLLBACK = (plan_rollback, roll_back)
