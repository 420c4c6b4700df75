"""``/v1/audit``: what people did, and whether the log of it is as it was written."""

from litestar import get, post

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import LEADER_ONLY, moment
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import BeforePosition, Limit, Since, UserFilter
from borgish.api.request import ApiRequest
from borgish.api.views.history import COMMAND_WORDS
from borgish.audit import AuditEntry
from borgish.text import instant
from borgish.wire.api import Page
from borgish.wire.api_access import AuditList, AuditVerdict, AuditVerifyRequest, AuditView

ENTRIES_DEFAULT = 100


@get("/v1/audit", opt={POLICY: Policy.ADMIN, LEADER_ONLY: "the audit log is not part of the journal"})
async def list_audit(
    request: ApiRequest,
    user: UserFilter = "",
    since: Since = "",
    limit: Limit = ENTRIES_DEFAULT,
    before: BeforePosition = 0,
) -> AuditList:
    """List the latest entries of the audit log that match, in order. Older ones: page.next as before."""
    now = await request.read(lambda reading: reading.now.wall)
    found = await request.services.audit.latest(user, moment(since, "since", now) or 0.0, before, limit)
    more = len(found) == limit and found[0].number > 1
    return AuditList(tuple(map(audit_view, found)), Page(str(found[0].number) if more else ""))


@post("/v1/audit/verify", opt={POLICY: Policy.ADMIN, CONSUMES: AuditVerifyRequest}, status_code=200)
async def verify_audit(request: ApiRequest) -> AuditVerdict:
    """Say whether each entry of the audit log follows from the one before, and a known one is among them."""
    asked = await request.json_as(AuditVerifyRequest)
    return await request.services.audit.verify(asked.known)


def audit_view(entry: AuditEntry) -> AuditView:
    """Return an entry as it is shown."""
    note = entry.note
    return AuditView(
        number=entry.number,
        at=instant(note.at),
        user=note.user,
        role=note.role,
        token=note.token,
        source=note.source,
        action=COMMAND_WORDS.get(note.action, note.action),
        object=note.object,
        outcome=note.outcome,
        count=note.count,
        position=entry.position,
        digest=entry.digest,
    )


AUDIT = (list_audit, verify_audit)
