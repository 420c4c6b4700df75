"""``/v1/drains`` and ``/v1/windows``: machines are drained and undrained, and have maintenance windows.

Which machines are meant is decided in one step with the rest, so that a condition means those that meet it
then.
"""

from litestar import post

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import moment_ahead
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import checked_affected, checked_reason
from borgish.api.preconditions import IF_MATCH
from borgish.api.request import ApiRequest
from borgish.cell.commands import (
    CancelMaintenance,
    DrainMachines,
    MaintainMachines,
    UndrainMachines,
)
from borgish.errors import Invalid
from borgish.spec.constraints import EXPRESSION_CHARACTERS_MAX
from borgish.wire.api import Accepted, DrainRequest, MaintainRequest, UndrainRequest

MACHINES_MAX = 10_000
DEADLINE_SECONDS_MAX = 366 * 86400.0
LEAD_SECONDS_MAX = 30 * 86400.0


@post("/v1/drains", opt={POLICY: Policy.OPERATE, CONSUMES: DrainRequest, IF_MATCH: True}, status_code=200)
async def drain(request: ApiRequest) -> Accepted:
    """Let machines become empty, within the budgets of what runs there, and place nothing new on them."""
    asked = await request.json_as(DrainRequest)
    _check_machines(asked)
    reason = checked_reason(asked.reason)
    _check_seconds("deadline_seconds", asked.deadline_seconds, DEADLINE_SECONDS_MAX)
    return await request.command(
        DrainMachines(
            asked.machines,
            asked.where,
            reason,
            asked.deadline_seconds,
            asked.force,
            checked_affected(asked),
        )
    )


@post(
    "/v1/drains/delete",
    opt={POLICY: Policy.OPERATE, CONSUMES: UndrainRequest, IF_MATCH: True},
    status_code=200,
)
async def undrain(request: ApiRequest) -> Accepted:
    """Take back what people asked for; maintenance windows stay."""
    asked = await request.json_as(UndrainRequest)
    _check_machines(asked)
    return await request.command(UndrainMachines(asked.machines, asked.where))


@post("/v1/windows", opt={POLICY: Policy.OPERATE, CONSUMES: MaintainRequest, IF_MATCH: True}, status_code=200)
async def maintain(request: ApiRequest) -> Accepted:
    """Plan maintenance: machines are drained before the window begins, and take tasks again after it."""
    asked = await request.json_as(MaintainRequest)
    _check_machines(asked)
    reason = checked_reason(asked.reason)
    _check_seconds("lead_seconds", asked.lead_seconds, LEAD_SECONDS_MAX)
    now = await request.read(lambda reading: reading.now.wall)
    begins, ends = moment_ahead(asked.begins, "begins", now), moment_ahead(asked.ends, "ends", now)
    if not (begins and ends):
        raise Invalid("a window has a beginning and an end", "Write times like 2026-01-31T22:00:00Z")
    return await request.command(
        MaintainMachines(asked.machines, asked.where, begins, ends, asked.lead_seconds, reason)
    )


@post(
    "/v1/windows/delete",
    opt={POLICY: Policy.OPERATE, CONSUMES: UndrainRequest, IF_MATCH: True},
    status_code=200,
)
async def cancel(request: ApiRequest) -> Accepted:
    """Let machines have no maintenance windows any more."""
    asked = await request.json_as(UndrainRequest)
    _check_machines(asked)
    return await request.command(CancelMaintenance(asked.machines, asked.where))


def _check_machines(asked: UndrainRequest) -> None:
    if len(asked.machines) > MACHINES_MAX:
        raise Invalid(f"more than {MACHINES_MAX} machines are named", "Choose them by a condition")
    if bool(asked.machines) is bool(asked.where):
        raise Invalid("either machines or where is needed", 'Name machines, or write where like "rack == r2"')
    if len(asked.where) > EXPRESSION_CHARACTERS_MAX:
        raise Invalid(f"where is longer than {EXPRESSION_CHARACTERS_MAX} characters", "Shorten it")


def _check_seconds(field: str, seconds: float, most: float) -> None:
    if not 0 <= seconds <= most:
        raise Invalid(f"{field}: {seconds:g} is outside 0 to {most:g}", "Give it in seconds")


DRAINS = (drain, undrain, maintain, cancel)
