"""``/v1/authority``: show the cell's authorities to whoever asks, and replace the one that signs.

What is shown is compared with a join token. It needs no token, for it is asked before one may be shown, so it
is outside of the API's door. All masters answer it, standbys too.
"""

from http import HTTPStatus

from litestar import Response, get, post

from borgish.api.auth import POLICY, Policy
from borgish.api.errors import encode, headers_of, problem_of
from borgish.api.middleware import App, Receive, Scope, Send
from borgish.api.moments import LEADER_ONLY
from borgish.api.openapi import PRODUCES
from borgish.api.rate_limits import Limits
from borgish.api.request import ApiRequest
from borgish.errors import BorgishError, NotFound
from borgish.tls.pinning import AUTHORITY_PATH, ENDORSEMENT_HEADER
from borgish.wire.api import Accepted
from borgish.wire.api_certificates import RotationView

PEM = "application/x-pem-file"


@post("/v1/authority/rotate", opt={POLICY: Policy.ADMIN}, status_code=200)
async def rotate(request: ApiRequest) -> RotationView:
    """Go one step on with replacing the cell's authority, once every machine has followed the last step."""
    # borgctl polls this while machines follow: a poll that changes nothing is not audited.
    held_up: RotationView | None = request.services.rotation_held_up()
    if held_up is not None:
        return held_up
    await request.note("rotate authority", "")
    view: RotationView = request.services.rotate_authority()
    return view


@post("/v1/authority/sealed", opt={POLICY: Policy.ADMIN}, status_code=200)
async def note_sealed(request: ApiRequest) -> Accepted:
    """Note in the audit log that an administrator of a master's host copies the cell's secrets, sealed."""
    await request.note("seal secrets", "")
    position = await request.read(lambda reading: reading.cell.position)
    return Accepted(position, "", "noted")


@get(
    AUTHORITY_PATH,
    opt={POLICY: Policy.OPEN, PRODUCES: {PEM: {}}, LEADER_ONLY: "each borgmaster answers this without it"},
)
async def show_authority(request: ApiRequest) -> Response[bytes]:
    """Show the authorities that the cell trusts, in PEM, the one that signs first; no token is needed."""
    # In the table for whoever reads that; the door below is asked before, and needs no leader.
    bundle: bytes = request.services.authority()
    return Response(expected(bundle), media_type=PEM)


AUTHORITY = (rotate, note_sealed, show_authority)


class AuthorityDoor:
    """ASGI around an app. ``bundle`` is what is shown, in PEM; b"" where the cell has no authority.
    ``endorsement`` is the signature of the authority before over the one that signs, in base64, if any."""

    def __init__(self, app: App, limits: Limits, bundle: bytes, endorsement: str = "") -> None:
        self._app, self._limits = app, limits
        self.bundle, self.endorsement = bundle, endorsement

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("GET", AUTHORITY_PATH):
            await self._app(scope, receive, send)
            return
        try:
            self._limits.stranger((scope.get("client") or ("nowhere",))[0])
            bundle = expected(self.bundle)
        except BorgishError as refused:
            body, headers = encode(problem_of(refused))
            await _answer(send, refused.status, body, headers + headers_of(refused))
            return
        headers = [(b"content-type", PEM.encode()), (b"content-length", b"%d" % len(bundle))]
        if self.endorsement:
            headers.append((ENDORSEMENT_HEADER.encode(), self.endorsement.encode()))
        await _answer(send, HTTPStatus.OK, bundle, headers)


def expected(bundle: bytes) -> bytes:
    """Return the authorities of a cell. Raises NotFound where it has none."""
    if not bundle:
        raise NotFound("this cell has no authority", "`borgctl cell init` makes a cell that has one")
    return bundle


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
