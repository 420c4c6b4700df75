"""The routes of quotas and bands: who may use them, what they take, and what they answer."""

import msgspec
import pytest

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    RemoveQuota,
    SetQuota,
    SubmitJob,
)
from borgish.cell.events import Entry, QuotaSet
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import Rules
from borgish.client import Client, quoted
from borgish.errors import Forbidden, Invalid, NotFound
from borgish.resources import Resources
from borgish.vocabulary import Band
from borgish.wire.api import Accepted, QuotaList, QuotaRequest, QuotaView
from tests.integration.api.fakes import RunningApi
from tests.unit.api.cells import NOW

GIB = 1024**3
PATH = quoted("quotas", "ann", "production")
REQUEST = QuotaRequest(20_000, 64 * GIB, 5, {"gpu": 4000}, {"licence": 3})
LIMITS = Resources(20_000, 64 * GIB, 5, {"licence": 3}, {"gpu": 4000})
OTHER = Bands(batch=110, names={"prod": Band.PRODUCTION})


def has(api: RunningApi, *quotas: Quota) -> None:
    cell = api.master.cell
    events = tuple(map(QuotaSet, quotas))
    api.do(lambda: apply_entry(cell, Entry(cell.position + 1, NOW.wall, 1, 1, "root", "test", events)))


def set_quota(client: Client, request: object = REQUEST, path: str = PATH, request_id: str = "") -> Accepted:
    return client.post(path, request, Accepted, request_id)


def test_an_admin_sets_and_deletes(api: RunningApi, admin: Client) -> None:
    set_quota(admin)
    set_quota(admin, QuotaRequest(1, 2, beyond_cell=True), quoted("quotas", "bob", "batch"))
    admin.post(PATH + "/delete", None, Accepted)
    assert [asked.command for asked in api.master.asked] == [
        SetQuota("ann", Band.PRODUCTION, LIMITS),
        SetQuota("bob", Band.BATCH, Resources(1, 2), beyond_cell=True),
        RemoveQuota("ann", Band.PRODUCTION),
    ]


@pytest.mark.parametrize("token", ["bgt_ann", "bgt_reader", "bgt_join"])
def test_nobody_else_does(api: RunningApi, token: str) -> None:
    client = api.client(token)
    for path in (PATH, PATH + "/delete"):
        with pytest.raises(Forbidden):
            client.post(path, REQUEST, Accepted)
    assert api.master.asked == []


def test_a_retry_is_answered_as_before(api: RunningApi, admin: Client) -> None:
    first = set_quota(admin, request_id="r1")
    again = set_quota(admin, request_id="r1")
    assert again == msgspec.structs.replace(first, replayed=True)
    assert len(api.master.asked) == 1


@pytest.mark.parametrize(
    ("until", "wall"),
    [
        ("2026-12-31", 1_798_675_200.0),
        ("2026-12-31T18:00:00+01:00", 1_798_736_400.0),
        ("30d", NOW.wall + 30 * 86_400),
        ("", 0.0),
    ],
)
def test_until_is_a_moment_or_how_long_from_now(
    api: RunningApi, admin: Client, until: str, wall: float
) -> None:
    set_quota(admin, QuotaRequest(1, 1, until=until))
    assert isinstance(command := api.master.asked[0].command, SetQuota)
    assert command.until == wall


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"cpu_millis": 1}, "invalid body"),
        ({"cpu_millis": 1, "ram_bytes": 1, "gpu": 2}, "invalid body"),
        ({"cpu_millis": 1.5, "ram_bytes": 1}, "invalid body"),
        ({"cpu_millis": -1, "ram_bytes": 1}, "cpu_millis: -1 is outside"),
        ({"cpu_millis": 1, "ram_bytes": 2**53}, "ram_bytes: 9007199254740992 is outside"),
        ({"cpu_millis": 1, "ram_bytes": 1, "named": {"x": -2}}, r"named\.x: -2 is outside"),
        ({"cpu_millis": 1, "ram_bytes": 1, "devices": {"GPU": 1}}, "devices: invalid name 'GPU'"),
        ({"cpu_millis": 1, "ram_bytes": 1, "named": {f"n{n}": 1 for n in range(65)}}, "named: 65 names"),
        ({"cpu_millis": 1, "ram_bytes": 1, "until": "soon"}, "until: 'soon' is neither"),
        ({"cpu_millis": 1, "ram_bytes": 1, "until": "9" * 20 + "d"}, "until: '99999"),
        ({"cpu_millis": 1, "ram_bytes": 1, "until": "9999-12-31T23:59:59-12:00"}, "until: '9999"),
        ({"cpu_millis": 1, "ram_bytes": 1, "until": "1970-01-01"}, "until: '1970"),
    ],
)
def test_what_is_no_quota_is_refused(api: RunningApi, admin: Client, request_: object, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        set_quota(admin, request_)
    assert api.master.asked == []


def test_names_of_bands_are_the_cells(api: RunningApi, admin: Client) -> None:
    assert admin.get("/v1/bands", None, Bands) == DEFAULT_BANDS
    with pytest.raises(NotFound, match="no band 'prod'") as caught:
        set_quota(admin, path=quoted("quotas", "ann", "prod"))
    assert caught.value.hint == "Did you mean production?"
    api.master.cell.rules = Rules(OTHER)
    assert admin.get("/v1/bands", None, Bands) == OTHER
    set_quota(admin, path=quoted("quotas", "ann", "prod"))
    assert api.master.asked[0].command == SetQuota("ann", Band.PRODUCTION, LIMITS)


def test_job_files_are_read_with_the_bands_of_the_cell(api: RunningApi, admin: Client) -> None:
    api.master.cell.rules = Rules(OTHER)
    for word, priority in (("prod", 200), ("batch", 110), ("free", 0)):
        text = f"name: a\npriority: {word}\nrun: [x]\n".encode()
        admin.post("/v1/jobs", text, Accepted, "", {"user": "ann"}, "application/yaml")
        assert isinstance(command := api.master.asked[-1].command, SubmitJob)
        assert command.spec.priority == priority


@pytest.mark.parametrize("user", ["Ann", "a" * 64, "a b", "-", "\x1b[2J"])
def test_a_user_has_a_name(api: RunningApi, admin: Client, user: str) -> None:
    with pytest.raises(Invalid, match="invalid user name"):
        set_quota(admin, path=quoted("quotas", user, "batch"))


def test_everybody_who_reads_sees_limits_use_and_what_is_free(api: RunningApi) -> None:
    has(api, Quota("ann", Band.PRODUCTION, Resources(900, GIB), NOW.wall + 60))
    shown = api.client("bgt_reader").get(PATH, None, QuotaView)
    assert shown.limits == Resources(900, GIB)
    assert (shown.used.cpu_millis, shown.set, shown.until) == (600, True, "2026-01-01T00:01:00.000Z")
    assert shown.free is not None
    assert shown.free.cpu_millis == 300


def test_who_has_no_quota_is_shown_without_a_limit(api: RunningApi, admin: Client) -> None:
    shown = admin.get(quoted("quotas", "bob", "production"), None, QuotaView)
    assert (shown.limits, shown.free, shown.set, shown.until) == (None, None, False, None)
    api.master.cell.rules = Rules(quota_required=True)
    shown = admin.get(quoted("quotas", "bob", "production"), None, QuotaView)
    assert (shown.limits, shown.free, shown.set) == (Resources(), Resources(), False)


def test_a_quota_that_has_ended_is_nothing(api: RunningApi, admin: Client) -> None:
    has(api, Quota("ann", Band.PRODUCTION, Resources(900, GIB), NOW.wall))
    shown = admin.get(PATH, None, QuotaView)
    assert (shown.limits, shown.set) == (Resources(), True)
    assert shown.until


def test_quotas_are_listed_in_pieces_with_what_is_used_without_one(api: RunningApi, admin: Client) -> None:
    has(
        api,
        Quota("ann", Band.BATCH, Resources(1, 1)),
        Quota("ann-lee", Band.BATCH, Resources(1, 1)),
        Quota("zoe", Band.BATCH, Resources(1, 1)),
    )
    first = admin.get("/v1/quotas", {"limit": 2}, QuotaList)
    rest = admin.get("/v1/quotas", {"after": first.page.next}, QuotaList)
    names = [(one.user, one.band) for one in (*first.items, *rest.items)]
    assert ("ann", Band.PRODUCTION) in names, "it has no quota and asks for something"
    assert sorted(set(names)) == sorted(names)
    assert {user for user, _ in names} >= {"ann", "ann-lee", "zoe"}
    assert Band.FREE not in {band for _, band in names}
    mine = admin.get("/v1/quotas", {"user": "ann"}, QuotaList).items
    assert {one.user for one in mine} == {"ann"}
