"""The routes of applications: who may use them, and what they take."""

import pytest

from borgish.client import Client
from borgish.errors import Forbidden, Invalid
from borgish.wire.api import Accepted
from borgish.wire.api_apps import ApplyRequest, AppPlanView, SourceText
from tests.integration.api.fakes import RunningApi

WEB = "name: web\nrun: [sh]\n"


def asked(text: str, app: str = "", user: str = "") -> ApplyRequest:
    return ApplyRequest((SourceText("shop.yaml", text),), app, user)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (asked(WEB, app="A/B"), "app: 'A/B' is not a name"),
        (asked(WEB, app="a" * 64), "is not a name"),
        (asked("{kind: app, name: shop}", user=".."), "user: '..' is not a name"),
        (asked("{kind: app, name: shop}" + " " * 5000, user="we ird"), "user: 'we ird' is not a name"),
        (ApplyRequest((), "shop"), "^there is no file to read"),
    ],
)
def test_what_nobody_could_name_is_not_applied(
    api: RunningApi, admin: Client, request_: ApplyRequest, words: str
) -> None:
    for path in ("/v1/apply", "/v1/apply/plan"):
        with pytest.raises(Invalid, match=words):
            admin.post(path, request_, Accepted if path == "/v1/apply" else AppPlanView)
    assert api.master.asked == []


def test_nobody_applies_for_others(api: RunningApi) -> None:
    bob = api.client("bgt_bob")
    for request_ in (asked(WEB, app="shop", user="ann"), asked("{kind: app, name: shop, user: ann}")):
        with pytest.raises(Forbidden):
            bob.post("/v1/apply", request_, Accepted)
    for verb in ("undo", "run", "kill", "remove"):
        with pytest.raises(Forbidden):
            bob.post(f"/v1/apps/ann/shop/{verb}", None, Accepted)
    assert api.master.asked == []
