"""``/v1/archive``: all that happened in a time, as rows, for who keeps it elsewhere."""

from litestar import get
from litestar.response import Stream

from borgish.api.asked import Asked
from borgish.api.auth import POLICY, Policy
from borgish.api.moments import moment
from borgish.api.openapi import GIVES
from borgish.api.parameters import Since, Until
from borgish.errors import Invalid


@get("/v1/archive", opt={POLICY: Policy.ADMIN, GIVES: {"application/x-ndjson": {}}})
async def stream_archive(request: Asked, since: Since = "", until: Until = "") -> Stream:
    """Stream events, attempts and samples of usage as lines of JSON; the last one of all has ``end``."""
    now = await request.read(lambda reading: reading.now.wall)
    first, last = moment(since, "since", now), moment(until, "until", now)
    if first is not None and last is not None and first > last:
        raise Invalid("since is after until", "Exchange the two")
    return Stream(await request.services.archive.begin(first, last), media_type="application/x-ndjson")


ARCHIVE = (stream_archive,)
