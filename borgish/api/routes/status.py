"""``/v1/status``, ``/v1/summary`` and ``/metrics``: the cell at one glance."""

from litestar import Response, get

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import AT, LEADER_ONLY, NOW, Moment
from borgish.api.openapi import PRODUCES
from borgish.api.request import ApiRequest
from borgish.api.views.status import EVENTS_SHOWN
from borgish.wire.api import AsOf, HealthView, StatusView, SummaryView, WhoamiView

HEALTH = "/v1/health"


@get("/v1/status", opt={POLICY: Policy.READ, AT: True})
async def show_status(request: ApiRequest) -> StatusView:
    """Show the cell at one glance."""
    return await request.read(lambda reading: reading.status())


@get("/v1/moment", opt={POLICY: Policy.READ, AT: True})
async def show_moment(request: ApiRequest) -> AsOf:
    """Say which moment is meant by ``at``, or why it cannot be reconstructed."""
    return await request.shown_as_of() or await request.services.moments.find(Moment(NOW))


@get(HEALTH, opt={POLICY: Policy.READ, LEADER_ONLY: "each borgmaster answers this of itself"})
async def show_health(request: ApiRequest) -> HealthView:
    """Show how this borgmaster is; a standby answers this too, of itself."""
    services = request.services
    return await services.reader.read(lambda _reading: services.health())


@get("/v1/whoami", opt={POLICY: Policy.READ, LEADER_ONLY: "it tells of the token, and of no position"})
async def show_whoami(request: ApiRequest) -> WhoamiView:
    """Show whom the token of this request stands for."""
    return WhoamiView(request.user.name, request.user.role)


@get("/v1/summary", opt={POLICY: Policy.READ, AT: True})
async def show_summary(request: ApiRequest) -> SummaryView:
    """Show what a dashboard shows: the status, and what needs a look, cut to a screenful."""
    events = (await request.events("", 0, EVENTS_SHOWN)).items
    return await request.read(lambda reading: reading.summary(events))


@get(
    "/metrics",
    opt={POLICY: Policy.READ, PRODUCES: {"text/plain": {}}, LEADER_ONLY: "these are figures of who leads"},
)
async def show_metrics(request: ApiRequest) -> Response[bytes]:
    """Show the figures of the cell, as text for Prometheus."""
    status = await request.read(lambda reading: reading.status())
    return Response(request.services.metrics(status), media_type="text/plain; version=0.0.4; charset=utf-8")


STATUS = (show_status, show_whoami, show_health, show_moment, show_summary, show_metrics)
