"""``/v1/machines``: join, list, show, cordon, uncordon, taint, untaint, remove, revoke."""

import re

from litestar import get, post

from borgish.api.auth import POLICY, Policy
from borgish.api.lists import Order, Scan, listed
from borgish.api.moments import AT
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import (
    LIMIT_MAX,
    MACHINE_SORTS,
    After,
    LabelFilter,
    Limit,
    MachineName,
    MachineStateFilter,
    SortMachines,
    TextFilter,
    checked_affected,
    checked_reason,
)
from borgish.api.preconditions import ETAG, IF_MATCH
from borgish.api.records import MachineQuery, MachineRecords
from borgish.api.request import ApiRequest, find_machine
from borgish.api.services import Reading
from borgish.api.views.machines import machine_view, rack_views
from borgish.cell.commands import (
    CordonMachine,
    RemoveMachine,
    RevokeMachine,
    TaintMachine,
    UncordonMachine,
    UntaintMachine,
)
from borgish.cell.machines.drains import Drains
from borgish.errors import Forbidden, Invalid
from borgish.spec.selectors import read_label
from borgish.tls.names import PEER, Peer
from borgish.vocabulary import TAINT_KEY_PATTERN, TAINT_VALUE_PATTERN
from borgish.wire.api import (
    Accepted,
    CordonRequest,
    MachineList,
    MachineView,
    Page,
    RemoveRequest,
    TaintRequest,
    UntaintRequest,
)
from borgish.wire.api_figures import RackList
from borgish.wire.bounds import mistakes_in_join
from borgish.wire.link import JoinReply, JoinRequest

JOIN_BYTES_MAX = 384 * 1024  # what wire/bounds.py lets a machine say fits in


@post(
    "/v1/machines",
    opt={POLICY: Policy.JOIN, CONSUMES: JoinRequest},
    status_code=200,
    request_max_body_size=JOIN_BYTES_MAX,
)
async def join(request: ApiRequest) -> JoinReply:
    """Take a machine into the cell; for borglets."""
    asked = await request.json_as(JoinRequest)
    if mistakes := mistakes_in_join(asked):
        first = mistakes[0]
        raise Invalid(f"invalid join request: {first.path}: {first.message}", first.hint, mistakes)
    peer: Peer | None = request.scope.get("state", {}).get(PEER)
    if peer is not None and peer.machine != asked.machine:
        raise Forbidden(
            f"this certificate is not that of machine {asked.machine}", "each machine has one of its own"
        )
    request.services.expect_obeyed()  # else its borglet asks the next master that it knows
    who = request.user
    if who.machine and who.machine != asked.machine:
        raise Forbidden(
            f"what was sent is for the machine {who.machine}, and not for {asked.machine}",
            "each machine has credentials of its own",
        )
    if asked.to_sign and not who.token and peer is None:
        raise Forbidden(
            "a certificate is signed for who shows the one before it, or an invitation",
            f"make one: `borgctl machine invite {asked.machine}`",
        )
    return await request.services.joining.join(asked, request.asker if who.token else None)


@post("/v1/machines/{machine:str}/revoke", opt={POLICY: Policy.ADMIN}, status_code=200)
async def revoke(request: ApiRequest, machine: MachineName) -> Accepted:
    """Have a machine out of the cell at once; what it holds runs elsewhere."""
    return await request.command(RevokeMachine(machine))


@get("/v1/machines", opt={POLICY: Policy.READ, AT: True})
async def list_machines(
    request: ApiRequest,
    in_state: MachineStateFilter = None,
    label: LabelFilter = "",
    text: TextFilter = "",
    sort: SortMachines = "",
    limit: Limit = LIMIT_MAX,
    after: After = "",
) -> MachineList:
    """List machines. A label is one of their attributes, as in ``rack=r1``."""
    order = Order(sort, after, MACHINE_SORTS, str, str)
    query = MachineQuery(in_state, read_label(label), text.lower())

    def view(reading: Reading, names: list[str], page: Page) -> MachineList:
        drains = Drains(reading.cell, reading.observed, reading.now)
        return MachineList(tuple(_view(reading, name, drains) for name in names), page)

    scan = Scan(lambda reading: MachineRecords(reading, query, order.key), order, limit)
    return await listed(request, scan, view)


@get("/v1/racks", opt={POLICY: Policy.READ, AT: True})
async def list_racks(request: ApiRequest) -> RackList:
    """List all machines by their rack, of each only its state and how full it is: a map of the cell."""
    return await request.read(
        lambda reading: RackList(rack_views(reading.cell, reading.observed, reading.tally))
    )


@get("/v1/machines/{machine:str}", opt={POLICY: Policy.READ, AT: True, ETAG: True})
async def show_machine(request: ApiRequest, machine: MachineName) -> MachineView:
    """Show a machine."""

    def view(reading: Reading) -> MachineView:
        request.tag(find_machine(reading.cell, machine).generation)
        return _view(reading, machine)

    return await request.read(view)


@post(
    "/v1/machines/{machine:str}/cordon",
    opt={POLICY: Policy.OPERATE, CONSUMES: CordonRequest, IF_MATCH: True},
    status_code=200,
)
async def cordon(request: ApiRequest, machine: MachineName) -> Accepted:
    """Place nothing new on a machine; what runs there goes on."""
    asked = await request.json_as(CordonRequest)
    return await request.command(CordonMachine(machine, checked_reason(asked.reason)))


@post("/v1/machines/{machine:str}/uncordon", opt={POLICY: Policy.OPERATE, IF_MATCH: True}, status_code=200)
async def uncordon(request: ApiRequest, machine: MachineName) -> Accepted:
    """Place new tasks on a machine again."""
    return await request.command(UncordonMachine(machine))


@post(
    "/v1/machines/{machine:str}/taint",
    opt={POLICY: Policy.OPERATE, CONSUMES: TaintRequest, IF_MATCH: True},
    status_code=200,
)
async def taint(request: ApiRequest, machine: MachineName) -> Accepted:
    """Mark a machine, so that only tasks that tolerate the mark are placed, or stay, there."""
    asked = await request.json_as(TaintRequest)
    if not re.fullmatch(TAINT_KEY_PATTERN, asked.key):
        raise Invalid(f"invalid taint key {asked.key[:63]!r}", "Write it like maintenance")
    if asked.value and not re.fullmatch(TAINT_VALUE_PATTERN, asked.value):
        raise Invalid(
            f"invalid taint value {asked.value[:63]!r}", "Use letters and digits, with . _ / - between them"
        )
    return await request.command(
        TaintMachine(machine, asked.key, asked.value, asked.effect, checked_affected(asked))
    )


@post(
    "/v1/machines/{machine:str}/untaint",
    opt={POLICY: Policy.OPERATE, CONSUMES: UntaintRequest, IF_MATCH: True},
    status_code=200,
)
async def untaint(request: ApiRequest, machine: MachineName) -> Accepted:
    """Take a mark off a machine."""
    asked = await request.json_as(UntaintRequest)
    if not re.fullmatch(TAINT_KEY_PATTERN, asked.key):
        raise Invalid(f"invalid taint key {asked.key[:63]!r}", "Name one that the machine shows")
    return await request.command(UntaintMachine(machine, asked.key))


@post(
    "/v1/machines/{machine:str}/remove",
    opt={POLICY: Policy.OPERATE, CONSUMES: RemoveRequest, IF_MATCH: True},
    status_code=200,
)
async def remove(request: ApiRequest, machine: MachineName) -> Accepted:
    """Take a machine that is down, or that holds nothing, out of the cell."""
    asked = await request.json_as(RemoveRequest)
    return await request.command(RemoveMachine(machine, checked_affected(asked)))


def _view(reading: Reading, name: str, drains: Drains | None = None) -> MachineView:
    cell, observed = reading.cell, reading.observed
    return machine_view(cell, observed, reading.tally, find_machine(cell, name), reading.now, drains)


MACHINES = (join, list_machines, list_racks, show_machine, cordon, uncordon, taint, untaint, remove, revoke)
