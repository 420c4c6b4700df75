"""``/v1/secrets``: values that jobs get and nobody is shown (Kubernetes' Secret, Swarm's ``docker secret``).

A value comes in once, is sealed here (``borgish.sealing``), and goes to the machines of tasks that use it, by
the link alone: no route answers with one.
"""

from litestar import get, post

from borgish.api.auth import POLICY, Policy, may_see_inside
from borgish.api.moments import AT_LEAST
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import LIMIT_MAX, After, Limit, Owner, SecretName, UserFilter, checked_name, cut
from borgish.api.request import ApiRequest
from borgish.api.services import Reading
from borgish.cell.access.commands import (
    RemoveSecret,
    SetSecret,
)
from borgish.cell.access.model import Secret, secret_key
from borgish.cell.access.secrets import live_users_by_secret
from borgish.text import instant
from borgish.wire.api import Accepted
from borgish.wire.api_access import SecretList, SecretRequest, SecretView


@get("/v1/secrets", opt={POLICY: Policy.SUBMIT, AT_LEAST: True})
async def list_secrets(
    request: ApiRequest, user: UserFilter = "", limit: Limit = LIMIT_MAX, after: After = ""
) -> SecretList:
    """List the secrets of who asks and of the groups that they are in, or for admins all; never values."""
    who = request.user

    def view(reading: Reading) -> SecretList:
        seen = {
            key: secret
            for key, secret in reading.cell.access.secrets.items()
            if may_see_inside(who, secret.owner) and user in ("", secret.owner)
        }
        chosen, page = cut(((key, seen[key]) for key in sorted(seen) if key > after), limit)
        users = live_users_by_secret(reading.cell)
        return SecretList(tuple(_view(secret, users.get(secret.key, [])) for secret in chosen), page)

    return await request.read(view)


def _view(secret: Secret, jobs: list[str]) -> SecretView:
    return SecretView(
        user=secret.owner,
        name=secret.name,
        size_bytes=secret.size_bytes,
        set_at=instant(secret.at),
        set_by=secret.by,
        jobs=tuple(sorted(jobs)),
        revoked_machines=secret.revoked_machines,
    )


@post("/v1/secrets/{user:str}/{name:str}", opt={POLICY: Policy.OWN, CONSUMES: SecretRequest}, status_code=200)
async def set_secret(request: ApiRequest, user: Owner, name: SecretName) -> Accepted:
    """Give a secret a value; those of its files that tasks have are replaced, their environments stay."""
    checked_name(user, "user")
    checked_name(name, "secret")
    asked = await request.json_as(SecretRequest)
    sealed = request.services.seal(secret_key(user, name), asked.value)
    # What is kept of a request to know it again must be no hash of the value, which might be guessed by that.
    return await request.command(SetSecret(user, name, sealed, len(asked.value)), content=sealed)


@post("/v1/secrets/{user:str}/{name:str}/remove", opt={POLICY: Policy.OWN}, status_code=200)
async def remove_secret(request: ApiRequest, user: Owner, name: SecretName) -> Accepted:
    """Forget a secret that nothing uses."""
    return await request.command(RemoveSecret(user, name))


SECRETS = (list_secrets, set_secret, remove_secret)
