"""Certificates near their end are told once at each threshold, shown, and counted."""

from pathlib import Path
from typing import Any

from borgish.api.views.events import event_views
from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.cell.access.commands import NoteCertificate
from borgish.cell.access.events import CertificateEnds
from borgish.cell.events import Entry
from borgish.cli.commands.status import in_full
from borgish.clock import Now
from borgish.errors import StoreFull
from borgish.master.certificates import Certificates
from borgish.master.expiry import NOTED_MAX, Expiry, Held
from borgish.master.health import Metrics
from borgish.master.host.settings import Settings
from borgish.tls.folder import make_authority
from borgish.tls.validity import Validity, leaf_until
from tests.unit.api.cells import NOW, small_cell, small_observed

DAY = 86400.0
AUTHORITY = Held("authority", Validity(0, 3650 * DAY), renews=False)
MASTER = Held("master", leaf_until(30 * DAY), renews=True)


class Journal:
    """A clock on which days pass, and what was handed in until then."""

    def __init__(self) -> None:
        self.day, self.full = 0.0, False
        self.told: list[tuple[str, float]] = []
        self.ids: list[str] = []

    def now(self) -> Now:
        return Now(self.day * DAY, self.day * DAY)

    async def note(self, command: NoteCertificate, _actor: str, request_id: str) -> Any:
        if self.full:
            raise StoreFull("the disk is full")
        self.told.append((command.machine or command.role, self.day))
        self.ids.append(request_id)


async def test_each_threshold_is_told_once_and_whoever_leads_next_says_the_same() -> None:
    journal, machines = Journal(), {"m1": 30 * DAY, "m2": 300 * DAY}
    watch = Expiry(lambda: (AUTHORITY, MASTER), lambda: machines, journal)
    for day in (15.0, 20.5, 21.5, 22.0, 27.5, 31.0):
        journal.day = day
        await watch.look(journal.note)
    assert journal.told == [("master", 21.5), ("m1", 21.5), ("master", 27.5), ("m1", 27.5)]
    before = journal.ids[-2:]
    await Expiry(lambda: (MASTER,), lambda: machines, journal).look(journal.note)
    assert journal.ids[-2:] == before, "by which the journal knows that it was told"


async def test_what_is_renewed_is_told_of_no_more_and_anew_when_it_ends_again() -> None:
    journal, machines = Journal(), {"m1": 30 * DAY}
    watch = Expiry(tuple, lambda: machines, journal)
    for day, ends in ((22.0, 30 * DAY), (23.0, 53 * DAY), (45.0, 53 * DAY)):
        journal.day, machines["m1"] = day, ends
        await watch.look(journal.note)
    assert [day for _, day in journal.told] == [22.0, 45.0]


async def test_what_is_not_renewed_by_itself_is_told_of_two_weeks_before() -> None:
    journal = Journal()
    watch = Expiry(lambda: (AUTHORITY,), dict, journal)
    for day in (3635.0, 3637.0, 3646.0, 3648.0):
        journal.day = day
        await watch.look(journal.note)
    assert journal.told == [("authority", 3637.0), ("authority", 3648.0)]


async def test_many_are_told_of_a_few_at_a_time_and_again_where_that_was_refused() -> None:
    journal, machines = Journal(), {f"m{number}": 30 * DAY for number in range(NOTED_MAX + 5)}
    journal.day, journal.full = 25.0, True
    watch = Expiry(tuple, lambda: machines, journal)
    await watch.look(journal.note)
    journal.full = False
    for _ in range(3):
        await watch.look(journal.note)
    assert [name for name, _ in journal.told] == list(machines)


def test_status_and_figures_have_the_first_of_each_role() -> None:
    journal = Journal()
    journal.day = 25.0
    ends = {"m1": 53 * DAY, "m2": 30 * DAY, "m3": 31 * DAY}
    views = Expiry(lambda: (AUTHORITY, MASTER), lambda: ends, journal).views()
    assert [(it.role, it.count, it.near, it.machine) for it in views] == [
        ("authority", 1, 0, ""),
        ("master", 1, 1, ""),
        ("machine", 3, 2, "m2"),
    ]
    daemon = Daemon(NOW.wall, "memory", certificates=views)
    status = status_view(small_cell(), small_observed(), Tally(), daemon, NOW)
    line = next(it for it in in_full(status, "https://h", 0).splitlines() if it.startswith("certificates"))
    assert line.split(maxsplit=1)[1] == (
        "authority for 3625d, master for 5d (1 near the end and not renewed), "
        "3 machines, of which m2 for 5d (2 near the end and not renewed)"
    )
    figures = Metrics().render(status).decode()
    assert f'borgish_certificate_seconds_left{{role="machine"}} {5 * DAY}' in figures
    assert 'borgish_certificates_near_end{role="machine"} 2.0' in figures
    assert "m2" not in figures


def test_the_event_says_whose_and_when() -> None:
    def words(*events: CertificateEnds) -> list[tuple[str, bool]]:
        entry = Entry(9, 10 * DAY, 1, 1, "certificates", "NoteCertificate", events)
        return [(view.text, view.bad) for view in event_views(entry)]

    assert words(
        CertificateEnds("machine", 13 * DAY, "m1"),
        CertificateEnds("authority", 24 * DAY),
        CertificateEnds("master", 0),
    ) == [
        ("m1 has a certificate that ends in 3d, and was not renewed", True),
        ("the certificate of the authority ends in 14d, and was not renewed", True),
        ("the certificate of the master is over", True),
    ]


def test_a_master_knows_its_own(tmp_path: Path) -> None:
    journal = Journal()
    journal.day = 20_000.0
    assert Certificates(Settings("c1", state=str(tmp_path)), journal).held() == ()
    make_authority(tmp_path, "c1", journal.now().wall)
    held = Certificates(Settings("c1", state=str(tmp_path)), journal).held()
    assert [(it.role, round(it.validity.ends / DAY - journal.day), it.renews) for it in held] == [
        ("authority", 3650, False),
        ("master", 30, True),
    ]
