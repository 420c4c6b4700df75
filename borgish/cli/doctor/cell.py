"""The checks of ``borgctl doctor`` that ask the master: over the API, and at its door."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import SplitResult

import borgish
from borgish.addresses import address_of
from borgish.cli.doctor.diagnosis import (
    ANSWER_SECONDS_MAX,
    Check,
    Found,
    Level,
    Patient,
    fail,
    good,
    some_of,
    warn,
)
from borgish.clock import SystemClock
from borgish.errors import BorgishError, Unauthenticated, UnsafeConfiguration
from borgish.resources import show_bytes
from borgish.text import age, local_times, plural, seconds_since, span
from borgish.tls.validity import ALARM_SECONDS, Validity
from borgish.vocabulary import HELD, PROGRAM_MEASURES, Runtime
from borgish.wire.api import CheckpointView, HealthView, MachineView
from borgish.wire.api_access import AuditVerdict, InvitationList, TokenView, UserList
from borgish.wire.api_past import CheckpointList, CheckpointVerdict

CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 2.0, 60.0
STORE_FREE_BYTES_MIN = 1024**3
CHECKPOINT_SECONDS_MAX = 3600.0
"""By default there is one each ten minutes in which something happened."""
VERIFY_SECONDS_MAX = 120.0
WAITING_SECONDS_MAX = 300.0
"""What waits for longer waits for more than its turn."""
JOBS_NAMED = 3
BY_HOST = "host"
"""Who made the tokens that a master takes over from its host."""
UNUSED_SECONDS_MAX = 90 * 86400.0
MACHINE_VERSION = "borglet"
"""The attribute by which a machine says its borglet's version."""
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_CLOSED = ("/v1/status", "/metrics", "/docs")
"""What answers nobody without a token; the last is nowhere in a master. Few: such requests are counted."""


# -- What somebody wants to know at night -----------------------------------------------------------------


def _master(patient: Patient) -> list[Found]:
    if patient.is_machine and patient.client is None:
        return good("not asked: this is a machine's folder; --url and --token-file name a master")
    error = patient.trouble
    if isinstance(error, Unauthenticated):
        return fail(error.message, error.hint or "`borgctl cell recover` makes another token, on its host")
    if error is not None:
        return fail(error.message, error.hint or "Start it, or look into its log")
    seen = patient.seen
    return good(f"{patient.asked.url} leads {seen.cell} at position {seen.position}, epoch {seen.epoch}")


def _masters(patient: Patient) -> list[Found]:
    each = patient.asked.each_master()
    if len(each) < 2:
        return good("there is one; --standby starts others, if the cell is to outlive its host")
    found: list[Found] = []
    for one in each:
        try:
            view = one.get("/v1/health", None, HealthView)
        except BorgishError as error:
            found += warn(
                f"{one.url} does not answer: {error.message}", "Start it, or take it out of `masters`"
            )
            continue
        finally:
            one.close()
        if view.trouble:
            found += warn(f"{one.url}, {view.role}: {view.trouble}", "Its log says more")
    return found or good(f"all {len(each)} answer")


def _refusing(patient: Patient) -> list[Found]:
    found = [Found(Level.FAIL, text, "Make room on the master's disk") for text in patient.seen.refusing]
    return found or good("commands are taken")


def _held_back(patient: Patient) -> list[Found]:
    seen = patient.seen
    frozen = f"the cell is frozen: {local_times(seen.frozen)}"
    found = warn(frozen, "`borgctl unfreeze`, when that is over") * bool(seen.frozen)
    found += [
        Found(Level.WARN, f"a change is paused: {text}", "`borgctl job update status` says how to go on")
        for text in seen.rollbacks_paused
    ]
    if held := [job.name for job in patient.summary.jobs if job.held]:
        found += warn(
            f"held, since they fail wherever they are: {some_of(held, JOBS_NAMED)}",
            f"`borgctl why {held[0]}` says how it fails; what failed of it is tried once a minute",
        )
    if stuck := {it.name: why for it in patient.machines if (why := _why_stuck(it))}:
        found += warn(
            f"drained, and not empty yet: {some_of([f'{name} ({why})' for name, why in stuck.items()])}",
            f"`borgctl machine show {next(iter(stuck))}` says why each task stays",
        )
    return found or good("nothing is held back")


def _why_stuck(machine: MachineView) -> str:
    """Return why tasks stay on a machine that is drained for a while; "" where that ends by its deadline."""
    began = [drain.begins or drain.at for drain in machine.drains if drain.begun]
    if not any(seconds_since(at) > WAITING_SECONDS_MAX for at in began):
        return ""
    return next((text for text in machine.staying if "it may finish until" not in text), "")


def _waiting(patient: Patient) -> list[Found]:
    summary = patient.summary
    held = {job.name for job in summary.jobs if job.held}  # of these another check tells
    long = [
        it
        for it in summary.pending
        if it.since
        and seconds_since(it.since) > WAITING_SECONDS_MAX
        and not it.in_order
        and it.job not in held
    ]
    if not long:
        return good(f"no task waits for a machine for more than {span(WAITING_SECONDS_MAX)}")
    jobs = list(dict.fromkeys(it.job for it in long))
    count = plural(sum(it.tasks for it in long), "task")
    told = sum(it.tasks for it in summary.pending)
    least = "at least " * (told < summary.status.pending)
    return warn(
        f"{least}{count} without a machine for more than {span(WAITING_SECONDS_MAX)}: "
        f"{some_of(jobs, JOBS_NAMED)}",
        f"`borgctl why {jobs[0]}` says why, and what would help",
    )


def _versions(patient: Patient) -> list[Found]:
    ours, theirs = borgish.__version__, patient.seen.version
    others = sorted(
        f"{machine.name} ({version})"
        for machine in patient.machines
        if (version := machine.attributes.get(MACHINE_VERSION, "says none")) != theirs
    )
    found: list[Found] = []
    if ours != theirs:
        found += warn(f"borgctl is {ours}, the master {theirs}", "Install the same release on both")
    if others:
        what = f"machines with another release than the master's {theirs}: {some_of(others)}"
        found += warn(
            what, "Upgrade them next: masters first, then borglets; one release of difference is fine"
        )
    return found or good(f"{theirs} everywhere")


def _clock(patient: Patient) -> list[Found]:
    return judged_skew(abs(seconds_since(patient.seen.now)), "this host's clock and the master's")


def judged_skew(skew: float, what: str) -> list[Found]:
    """Return what is to be said of two clocks that are so many seconds apart."""
    text = f"{what} differ by {skew:.1f} s"
    to_do = "Have both set by NTP: certificates, tokens and crons go by the clock"
    if skew >= CLOCK_FAIL_SECONDS:
        return fail(text, to_do)
    return warn(text, to_do) if skew >= CLOCK_WARN_SECONDS else good(text)


def _store_disk(patient: Patient) -> list[Found]:
    free = patient.seen.store_free_bytes
    if free is None:
        return good(f"{patient.seen.store}: its disk is its server's matter")
    text = f"{show_bytes(free)} free for the database"
    if free < STORE_FREE_BYTES_MIN:
        return warn(text, "Make room before the master refuses new work; the documentation has A full disk")
    return good(text)


def _checkpoints(patient: Patient) -> list[Found]:
    kept = patient.asked.get("/v1/checkpoints", None, CheckpointList).items
    if not kept:
        return warn("there is none yet", "`borgctl checkpoint create` makes one; without it all is replayed")
    newest: CheckpointView = kept[0]
    patient.asked.timeout_seconds = VERIFY_SECONDS_MAX
    try:
        path = f"/v1/checkpoints/{newest.position}/verify"
        verdict = patient.asked.post(path, None, CheckpointVerdict)
    finally:
        patient.asked.timeout_seconds = ANSWER_SECONDS_MAX
    where = f"position {newest.position}, {age(newest.at)} old"
    if not verdict.good:
        return fail(f"{where}: {verdict.text}", "`borgctl checkpoint create` now, and look at the disk")
    is_behind = newest.position < patient.seen.position
    if is_behind and seconds_since(newest.at) > CHECKPOINT_SECONDS_MAX:
        return warn(f"the newest is at {where}", "The borgmaster's log says why none is made")
    bad = [str(one.position) for one in kept if one.problem]
    if bad:
        return warn(f"no good: {some_of(bad)}", "`borgctl checkpoint verify` says why; delete them")
    return good(f"the newest of {len(kept)} verifies: {where}")


def _audit(patient: Patient) -> list[Found]:
    verdict = patient.asked.post("/v1/audit/verify", None, AuditVerdict)
    if not verdict.holds:
        return fail(
            verdict.trouble, "Somebody changed it, or its disk did: compare with a copy kept elsewhere"
        )
    return good(f"each entry follows from the one before; there are {verdict.entries}")


def _machines(patient: Patient) -> list[Found]:
    machines = patient.machines
    if not machines:
        return warn("the cell has none", "`borgctl machine invite` prints the line to run on one")
    down = [f"{it.name} ({it.reason or 'down'})" for it in machines if it.state == "down"]
    silent = [it.name for it in machines if it.state != "down" and not it.answering]
    quarantined = [it.name for it in machines if it.state == "quarantined"]
    found: list[Found] = []
    if down:
        level = Level.FAIL if 2 * len(down) >= len(machines) else Level.WARN
        found.append(
            Found(level, f"down: {some_of(down)}", "Start the host, or its borglet; its log says more")
        )
    if silent:
        found += warn(f"not answering: {some_of(silent)}", "Look at the host and the network to it")
    if quarantined:
        found += warn(f"went down again and again: {some_of(quarantined)}", "`borgctl why` says since when")
    return found or good(f"{plural(len(machines), 'machine')}, all up")


def _conditions(patient: Patient) -> list[Found]:
    found = [
        Found(Level.WARN, f"{machine.name}: {text}", f"`borgctl machine show {machine.name}` says more")
        for machine in patient.machines
        for text in machine.conditions
    ]
    return found or good("no machine reports trouble")


def _engines(patient: Patient) -> list[Found]:
    with_engine = [it.name for it in patient.machines if "docker" in it.runtimes]
    count = f"{len(with_engine)} of {plural(len(patient.machines), 'machine')}"
    return good(f"{count} can run containers")


# -- Who may what -----------------------------------------------------------------------------------------


def _listens_here_only(patient: Patient) -> bool:
    return address_of(patient.asked.url).hostname in LOOPBACK


def _tokens(patient: Patient) -> list[Found]:
    tokens = patient.tokens
    found: list[Found] = []
    endless = [_token(it) for it in tokens if not it.expires_at and it.created_by != BY_HOST]
    if endless and not _is_plain_and_local(patient):
        found += warn(
            f"without an end: {some_of(endless)}",
            "Make others by `borgctl token create --for 90d`, then `borgctl token revoke ID`",
        )
    unused = [
        f"{it.id} ({it.user})"
        for it in tokens
        if seconds_since(it.used_at or it.created_at) > UNUSED_SECONDS_MAX
    ]
    if unused:
        found += warn(f"not used for 90 days: {some_of(unused)}", "`borgctl token revoke ID`")
    return found or good(f"{plural(len(tokens), 'token')}, all in use and with an end where they need one")


def _token(token: TokenView) -> str:
    return f"{token.id} ({token.user}, {token.role})"


def _host_tokens(patient: Patient) -> list[Found]:
    """Those that lie in the state folder of a master, from `cell init` or `cell recover`."""
    endless = [_token(it) for it in patient.tokens if not it.expires_at and it.created_by == BY_HOST]
    if endless and not _is_plain_and_local(patient):
        return warn(
            f"made on the master's host, without an end: {some_of(endless)}",
            "Give each admin a token of their own, revoke these; `borgctl cell recover` makes another",
        )
    return good("none without an end that a cell which others reach could do without")


def _is_plain_and_local(patient: Patient) -> bool:
    """Whether nobody but users of this host can show a token at all."""
    return _listens_here_only(patient) and address_of(patient.asked.url).scheme == "http"


def _invitations(patient: Patient) -> list[Found]:
    from borgish.cli.lookup import every

    there = list(every(patient.asked, "/v1/invitations", {}, InvitationList))
    wide = [f"{it.id} ({it.uses} of any name)" for it in there if not it.machine and it.uses > 1]
    if wide:
        return warn(f"let in several machines: {some_of(wide)}", "Revoke them when all have joined")
    return good(f"{plural(len(there), 'invitation')} open")


def _grants(patient: Patient) -> list[Found]:
    from borgish.cli.lookup import every
    from borgish.spec.privileges import CAPABILITY, CONTAINER_ROOT, HOST_ROOT, MOUNT_WRITE

    wide = (CONTAINER_ROOT, CAPABILITY, MOUNT_WRITE, HOST_ROOT)
    users = every(patient.asked, "/v1/users", {}, UserList)
    held = [f"{it.name}: {grant}" for it in users for grant in it.grants if grant.startswith(wide)]
    if held:
        return warn(
            f"reach further into machines than others: {some_of(held)}",
            "`borgctl user ungrant USER GRANT` where it is not needed any more",
        )
    return good("nobody's tasks may be root, have capabilities, or write to a machine's folders")


# -- The door ---------------------------------------------------------------------------------------------


def _door(patient: Patient) -> list[Found]:
    """Whether anything answers without a token. A port without TLS is the same door on loopback."""
    open_ = []
    for path in _CLOSED:
        status = _without_token(patient, path)
        if status < 400:
            open_.append(path)
    if open_:
        return fail(
            f"answered without a token: {some_of(open_)}", "Is that a borgmaster? Close it off at once"
        )
    return good("nothing answers without a token")


def _without_token(patient: Patient, path: str) -> int:
    with closing(connection_to(patient.asked.url)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def connection_to(url: str) -> http.client.HTTPConnection:
    """Return a connection to a master on which nothing is said of who asks. Raises Invalid."""
    address = address_of(url)
    host, port = address.hostname or "", address.port
    if address.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
    return http.client.HTTPSConnection(host, port, timeout=ANSWER_SECONDS_MAX, context=_any_certificate())


def _other_hosts(patient: Patient) -> list[Found]:
    """Whether a page of another site, whose name leads here, is answered."""
    if not _is_plain_and_local(patient):
        return good("reached by TLS, with the cell's own names")
    with closing(connection_to(patient.asked.url)) as connection:
        connection.request("GET", "/v1/health", headers={"Host": "rebound.example"})
        status = connection.getresponse().status
    if status < 400:
        return fail("answers by a foreign Host header", "Is that a borgmaster? Close it off at once")
    return good("a foreign Host header is refused")


def _tls(patient: Patient) -> list[Found]:
    address = address_of(patient.asked.url)
    if address.scheme == "http":
        if address.hostname in LOOPBACK:
            return good("on loopback, where no other host hears it")
        return fail(
            f"{patient.asked.url} is plain HTTP to another host", "Run `borgctl cell init`, or see [tls]"
        )
    if takes_tls_1_2(address):
        return fail("TLS 1.2 is taken", "What ends TLS there is no borgmaster, or stands before it")
    return good("TLS 1.3 alone")


def _connected(address: SplitResult) -> socket.socket:
    return socket.create_connection((address.hostname or "", address.port or 443), timeout=ANSWER_SECONDS_MAX)


def takes_tls_1_2(address: SplitResult) -> bool:
    """Return whether who listens there takes the older version. Raises OSError."""
    context = _any_certificate()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        with _connected(address) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError:
        return False


def _any_certificate() -> ssl.SSLContext:
    """Return a context that judges nobody: what is shown is looked at, and nothing is said to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _certificate(patient: Patient) -> list[Found]:
    try:
        validity = validity_shown(address_of(patient.asked.url))
    except UnsafeConfiguration:
        return warn("the certificate is none of a cell's own", "Watch its end by what renews it")
    if validity is None:
        return good("none is needed on loopback")
    return judged("the master's certificate", validity, "The borgmaster's log says why it is not renewed")


def validity_shown(address: SplitResult) -> Validity | None:
    """Return how long the certificate is good that a master shows; None where it shows none. Raises OSError,
    and UnsafeConfiguration for what is not of a cell."""
    if address.scheme == "http":
        return None
    from borgish.tls.authority import describe

    with _connected(address) as plain, _any_certificate().wrap_socket(plain) as shown:
        der = shown.getpeercert(binary_form=True) or b""
    return describe(ssl.DER_cert_to_PEM_cert(der).encode()).validity


def judged(what: str, validity: Validity, to_do: str) -> list[Found]:
    """Return what is to be said of how long a certificate is good."""
    now = SystemClock().now().wall
    if now >= validity.ends or now < validity.begins:
        return fail(f"{what} is not good now", to_do)
    text = f"{what} ends in {span(validity.ends - now)}"
    alarm = validity.alarm(now)
    if not alarm:
        return good(text)
    return fail(text, to_do) if alarm == min(ALARM_SECONDS) else warn(text, to_do)


# -- What keeps tasks in ----------------------------------------------------------------------------------

_OFF = "off:"
"""Begins what a machine says of a measure that its file turned off."""
_UNSAID = "not reported: its borglet is of an older release, or was not heard since this master leads"
_OF_DOCKER = "docker "
"""Begins the names of the measures for containers; the others are for plain programs."""
_RUNS_NOTHING = frozenset({"down", "revoked"})
"""The states of a machine of which nothing is known, and of which other checks tell."""
MEASURES = {
    "uid": ("S70", "Run the borglet as root: tasks then get users of their own"),
    "capabilities": ("S72", "Let the borglet make namespaces: run it as root, or allow them to its user"),
    "namespaces": ("S72", "Let the borglet make namespaces: run it as root, or allow them to its user"),
    "files": ("S72", "Let the borglet make namespaces: run it as root, or allow them to its user"),
    "read_only": ("S72", "Let the borglet make namespaces: run it as root, or allow them to its user"),
    "proc": ("S72", "Let the borglet make namespaces: run it as root, or allow them to its user"),
    "syscalls": ("S72", "Use a kernel with seccomp, on x86-64 or arm64"),
    "landlock": ("S74", "Use a kernel with Landlock (5.19 or newer), in the list of lsm="),
    "sockets": ("S74", "Use a kernel with Landlock's scopes (6.12 or newer)"),
    "network": ("S72", "Let the borglet make namespaces: run it as root, or allow them to its user"),
    "metadata": ("S67", "Install nftables or iptables, and run the borglet as root"),
    "docker seccomp": ("S53", "Turn seccomp on in the engine, and take it out of `without`"),
    "docker user namespace": (
        "S55",
        "Set userns-remap in the engine's daemon.json, or use a rootless engine",
    ),
    "docker kernel profile": ("S53", "Use AppArmor or SELinux, as Debian and Fedora do by default"),
    "docker network": ("S61", "Let the engine make bridges, and take network out of `without`"),
    "docker neighbours": ("S61", "Let the engine set its rules (--iptables), and load br_netfilter"),
    "docker programs": ("S61", "Install iptables, and run the borglet as root"),
    "docker metadata address": ("S67", "Install iptables, and run the borglet as root"),
    "docker limits": ("S57", "Turn these control groups on in the kernel's command line"),
}
"""The row of each measure, and what to do where it does not hold."""
assert set(PROGRAM_MEASURES) <= MEASURES.keys()


def _kept_in(measure: str) -> Check:
    row, to_do = MEASURES[measure]

    def look(patient: Patient) -> list[Found]:
        return list(_by_answer(patient.machines, measure, to_do)) or good("held wherever it can matter")

    return Check(measure, look, row, security=True)


def _by_answer(machines: list[MachineView], measure: str, to_do: str) -> Iterator[Found]:
    """Return one finding for all machines that say the same."""
    by_text: dict[str, list[str]] = {}
    runtime = Runtime.DOCKER if measure.startswith(_OF_DOCKER) else Runtime.PROCESS
    for machine in machines:
        matters = runtime in machine.runtimes and machine.state not in _RUNS_NOTHING
        text = machine.confinement.get(measure, _UNSAID if matters else HELD)
        if text != HELD:
            by_text.setdefault(text, []).append(machine.name)
    for text, names in by_text.items():
        level = Level.FAIL if text.startswith(_OFF) else Level.WARN
        way_out = "Upgrade it, or have it answer; then look again" if text == _UNSAID else to_do
        yield Found(level, f"{some_of(names)}: {text}", way_out)


CELL_CHECKS: tuple[Check, ...] = (
    Check("master", _master),
    Check("masters", _masters),
    Check("commands", _refusing),
    Check("held back", _held_back),
    Check("waiting tasks", _waiting),
    Check("versions", _versions),
    Check("clock", _clock),
    Check("store's disk", _store_disk),
    Check("checkpoints", _checkpoints, "S48"),
    Check("audit log", _audit, "S46"),
    Check("machines", _machines),
    Check("conditions", _conditions),
    Check("engines", _engines),
    Check("certificate", _certificate, "S6"),
    Check("tokens", _tokens, "S15"),
    Check("host's token", _host_tokens, "S15"),
    Check("invitations", _invitations, "S7", security=True),
    Check("grants", _grants, "S21", security=True),
    Check("door", _door, "S3", security=True),
    Check("host header", _other_hosts, "S12", security=True),
    Check("tls", _tls, "S5", security=True),
    *(_kept_in(measure) for measure in MEASURES),
)
