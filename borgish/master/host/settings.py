"""What a borgmaster reads from ``cell.toml``. Anything wrong there ends it with exit code 74."""

import math
import re
import ssl
from pathlib import Path

import msgspec

from borgish.addresses import address_of, is_loopback
from borgish.api.rate_limits import LimitSettings
from borgish.bands import DEFAULT_BANDS, Bands, wrong_with
from borgish.cell.free_space import Floor
from borgish.cell.limits.footprint import FOOTPRINT_BYTES_MAX
from borgish.cell.model import Rules
from borgish.cell.tasks.leases import LEASE_SECONDS
from borgish.configuration import Count, Days, Positive, Share, read
from borgish.errors import Invalid, UnsafeConfiguration
from borgish.master.lease import LeaseSettings
from borgish.master.lease import wrong_with as wrong_with_lease
from borgish.reload import merged
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.schedule import FAILURE_DOMAINS, SchedulerSettings, SchedulerTable
from borgish.spec.job import MACHINE
from borgish.store.checkpoints import Retention
from borgish.tls.files import AUTHORITY_FILE
from borgish.vocabulary import NAME_PATTERN, TAINT_KEY_PATTERN

LIVE = (
    *("checkpoints.every_minutes", "checkpoints.every_entries", "disk", "eviction", "journal"),
    *("keep", "limits", "poll", "rollback", "tls", "usage"),
)
"""What can be changed while a master runs. Store, listener and the cell's rules are made from the rest."""

_MIB = 1024**2


class CellTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the cell is made of: which attributes of machines are failure domains, the smallest first."""

    failure_domains: tuple[str, ...] = FAILURE_DOMAINS


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files in PEM: our certificate and key, and the authority that signs those of the borglets."""

    certificate: str
    key: str
    ca: str


class Poll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How machines are polled, and when one that does not answer counts as down. Seconds."""

    hold_seconds: Positive = 2.0
    hold_seconds_max: Positive = 4.5  # in a cell of thousands of machines
    timeout_seconds: Positive = 2.0
    down_after_seconds: Positive = 10.0  # of silence
    down_after_refused_seconds: Positive = 60.0  # while its host refuses connections, and so is alive


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the dead, and what people did, are remembered. 0 days: all of it, for good."""

    dead_jobs_hours: Positive = 24.0
    dead_tasks: Count = 100_000  # of each user; the oldest dead jobs go first, the latest stays
    audit_days: Days = 365.0


class Checkpoints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often the cell is kept by itself, and which of that stays (see ``store.checkpoints``)."""

    every_minutes: Positive = 10.0
    every_entries: Count = 50_000  # of the journal: a start need never replay many more
    keep: Retention = Retention()


class Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the history is kept. 0 days: all of it, for good."""

    keep_days: Days = 0.0


class UsageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often a sample is kept of what tasks use, and for how long. 0 days: none is."""

    sample_seconds: Positive = 60.0
    keep_days: Days = 7.0


class QuotaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``required``: who has no quota in a band may have nothing there, rather than anything.
    ``footprint_mib``: the most of one user's records, see ``cell.limits.footprint``."""

    required: bool = False
    footprint_mib: Count = FOOTPRINT_BYTES_MAX // _MIB


class Rollback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How fast rollbacks, updates and restarts stop running tasks."""

    stops_per_second: Count = 50


class DisruptionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which share of the running tasks one command stops without ``--max-affected``."""

    affected_share_max: Share = 0.2


class EvictionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How fast machines that are down are given up: this share of all in ten seconds, one in any case."""

    lost_share_max: Share = 0.02


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See ``configs/cell.toml`` for each field."""

    name: str
    listen: str = "127.0.0.1:7400"
    state: str = "."
    db: str = ""
    checkpoints: Checkpoints = Checkpoints()
    journal: Journal = Journal()
    usage: UsageSettings = UsageSettings()
    disk: Floor = Floor()
    poll: Poll = Poll()
    keep: Keep = Keep()
    cell: CellTable = CellTable()
    scheduler: SchedulerTable = SchedulerTable()
    quota: QuotaSettings = QuotaSettings()
    bands: Bands = DEFAULT_BANDS
    rollback: Rollback = Rollback()
    disruption: DisruptionSettings = DisruptionSettings()
    eviction: EvictionSettings = EvictionSettings()
    tls: Tls | None = None
    advertise: str = ""
    masters: tuple[str, ...] = ()
    lease: LeaseSettings = LeaseSettings()
    limits: LimitSettings = LimitSettings()

    @property
    def host(self) -> str:
        """The address to listen on."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port to listen on."""
        return int(self.listen.rpartition(":")[2])

    @property
    def rules(self) -> Rules:
        """What the cell's decisions depend on."""
        footprint_bytes_max = self.quota.footprint_mib * _MIB
        return Rules(self.bands, self.quota.required, self.disruption.affected_share_max, footprint_bytes_max)

    @property
    def scheduling(self) -> SchedulerSettings:
        """How the scheduler works, and what it needs to know of the cell."""
        table = msgspec.structs.asdict(self.scheduler)
        return SchedulerSettings(**table, failure_domains=self.cell.failure_domains)

    @property
    def folder(self) -> Path:
        """Where tokens, secret, lock and, for SQLite, the database are."""
        return Path(self.state)

    @property
    def has_authority(self) -> bool:
        """Whether the cell has an authority of its own."""
        return (self.folder / AUTHORITY_FILE).exists()

    @property
    def db_url(self) -> str:
        """The database, as SQLAlchemy names it."""
        return self.db or f"sqlite:///{self.folder / 'cell.db'}"


def read_settings(path: Path, listen: str = "") -> Settings:
    """Read the file. Paths in it are relative to it. ``listen``, if given, is instead of its own.

    Raises UnsafeConfiguration.
    """
    hint = "give the file with --config, or make a cell with `borgctl up`"
    settings = read(path, Settings, "configs/cell.toml", hint)
    if listen:
        settings = msgspec.structs.replace(settings, listen=listen)
    return _checked(path, _with_folder(path, settings))


def reread(path: Path, old: Settings, new: Settings) -> Settings:
    """Return what a running master goes by after its file was changed: the old settings with what is live of
    the new. Raises UnsafeConfiguration where these do not go together.
    """
    return _checked(path, merged(old, new, LIVE))


def _with_folder(path: Path, settings: Settings) -> Settings:
    base = path.resolve().parent
    tls = settings.tls and Tls(
        *(str(base / name) for name in (settings.tls.certificate, settings.tls.key, settings.tls.ca))
    )
    masters = tuple(url.rstrip("/") for url in settings.masters)
    return msgspec.structs.replace(settings, state=str(base / settings.state), tls=tls, masters=masters)


def _check_tls(path: Path, tls: Tls) -> None:
    """Raise UnsafeConfiguration, naming the key, for files that cannot be used."""
    for key, file in (("certificate", tls.certificate), ("key", tls.key), ("ca", tls.ca)):
        if not Path(file).is_file():
            raise UnsafeConfiguration(f"{path}: tls.{key}: there is no file {file}", "name files in PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key = "ca"
    try:
        context.load_verify_locations(tls.ca)
        key = "certificate and tls.key"
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error.strerror
        raise UnsafeConfiguration(
            f"{path}: tls.{key}: cannot be used: {str(reason).lower().replace('_', ' ')}",
            "give files in PEM: the key without a passphrase and of this certificate",
        ) from None


def _check_keeping(path: Path, settings: Settings) -> None:
    """Raise UnsafeConfiguration for a history without the checkpoints that it is replayed from."""
    keep, days = settings.checkpoints.keep, settings.journal.keep_days
    if days and keep.daily <= days:
        raise UnsafeConfiguration(
            f"{path}: journal.keep_days: {days:g} days cannot be kept with checkpoints of {keep.daily} days: "
            "the journal is replayed from the checkpoint before",
            f"make checkpoints.keep.daily {math.floor(days) + 1} or more, or keep_days less",
        )


def _check_failing_over(path: Path, settings: Settings) -> None:
    """Raise UnsafeConfiguration for a lease that ends too soon, and an address that no client could use."""
    if wrong := wrong_with_lease(settings.lease):
        raise UnsafeConfiguration(f"{path}: lease: {wrong}", "remove [lease] for the defaults")
    given = [("advertise", settings.advertise)] if settings.advertise else []
    for key, url in [*given, *(("masters", url) for url in settings.masters)]:
        try:
            address_of(url)
        except Invalid:
            raise UnsafeConfiguration(
                f"{path}: {key}: {url!r} is not the address of a borgmaster",
                "write it like https://host-a:7400",
            ) from None


def _check_scheduling(path: Path, settings: Settings) -> None:
    """Raise UnsafeConfiguration for a policy that is unknown, and failure domains that cannot be."""
    policy = settings.scheduler.policy
    if policy not in POLICIES:
        raise UnsafeConfiguration(
            f"{path}: scheduler.policy: {policy!r} is not known", f"known are {', '.join(POLICIES)}"
        )
    for name in settings.cell.failure_domains:
        if not re.fullmatch(TAINT_KEY_PATTERN, name) or name == MACHINE:
            raise UnsafeConfiguration(
                f"{path}: cell.failure_domains: {name!r} cannot be an attribute of machines",
                'write names of attributes, like ["rack", "zone"]; over machines replicas are spread anyway',
            )


def _authority_command(path: Path, settings: Settings) -> str:
    """Return the command that makes an authority: for a cell that there is, or together with one."""
    if (settings.folder / "secret").exists():
        return f"borgctl cell adopt --config {path}"
    return f"borgctl cell init --name {settings.name} --dir {path.parent}"


def _checked(path: Path, settings: Settings) -> Settings:
    host, _, port = settings.listen.rpartition(":")
    if not re.fullmatch(NAME_PATTERN, settings.name):
        hint = "write lower-case letters, digits and '-', at most 63"
        raise UnsafeConfiguration(f"{path}: name: invalid name {settings.name!r}", hint)
    if "\0" in settings.state:
        raise UnsafeConfiguration(f"{path}: state: contains a NUL character", "name a folder")
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise UnsafeConfiguration(
            f"{path}: listen: '{settings.listen}' is not HOST:PORT", "write it like 127.0.0.1:7400"
        )
    if not is_loopback(settings.host) and settings.tls is None and not settings.has_authority:
        raise UnsafeConfiguration(
            f"{path}: listen: {settings.listen} can be reached from other machines, and the cell has neither "
            "an authority of its own nor [tls]",
            f"make one with `{_authority_command(path, settings)}`, or listen on 127.0.0.1",
        )
    _check_scheduling(path, settings)
    wrong, hint = wrong_with(settings.bands)
    if wrong:
        raise UnsafeConfiguration(f"{path}: bands: {wrong}", hint)
    _check_keeping(path, settings)
    _check_failing_over(path, settings)
    poll = settings.poll
    if poll.down_after_seconds <= poll.hold_seconds + poll.timeout_seconds:
        raise UnsafeConfiguration(
            f"{path}: poll.down_after_seconds: {poll.down_after_seconds:g} is less than one poll may take",
            "make it more than hold_seconds and timeout_seconds together",
        )
    for key, seconds in (("hold_seconds", poll.hold_seconds), ("hold_seconds_max", poll.hold_seconds_max)):
        if seconds + poll.timeout_seconds >= LEASE_SECONDS:
            raise UnsafeConfiguration(
                f"{path}: poll.{key}: leases of exclusive tasks would end between two polls",
                f"make it and timeout_seconds less than {LEASE_SECONDS:g} together",
            )
    if settings.tls is not None:
        _check_tls(path, settings.tls)
    return settings
