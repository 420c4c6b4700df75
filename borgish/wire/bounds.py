"""What a machine may say of itself. Joining and every report are held to it at the master's edge.

A borglet is a program on another host: what it sends ends in the journal, in tables with columns of
64 bits, and on people's screens. One wrong number from one machine must not end the master.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping

from borgish.addresses import is_loopback
from borgish.errors import Mistake
from borgish.resources import DEVICE_MILLIS, DEVICES_MAX, NAMED_MAX, Resources
from borgish.vocabulary import NAME_PATTERN
from borgish.wire.link import Facts, JoinRequest

AMOUNT_MAX = 2**60  # of cpu, ram, disk: far above any machine, and some still fit a column together
NAMED_AMOUNTS_MAX = 64
ATTRIBUTES_MAX = 128
IMAGES_MAX = 512
IMAGE_CHARACTERS_MAX = 512
KEY_CHARACTERS_MAX = 63
VALUE_CHARACTERS_MAX = 256
ID_CHARACTERS_MAX = 128
HOST_CHARACTERS_MAX = 253

_WHOLE_DEVICES = range(0, DEVICES_MAX * DEVICE_MILLIS + 1, DEVICE_MILLIS)
_NAME = re.compile(NAME_PATTERN)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def mistakes_in_join(request: JoinRequest) -> tuple[Mistake, ...]:
    """Return what is wrong with what a machine says when it joins."""
    return (*_who_and_where(request), *_in_facts(request.facts, "facts."))


def mistakes_in_facts(facts: Facts) -> tuple[Mistake, ...]:
    """Return what is wrong with what a machine says that it is."""
    return tuple(_in_facts(facts, ""))


def _who_and_where(request: JoinRequest) -> Iterator[Mistake]:
    if not _NAME.fullmatch(request.machine):
        hint = "write lower-case letters, digits and '-', at most 63"
        yield Mistake(f"invalid machine name {_shown(request.machine)}", path="machine", hint=hint)
    if not _is_host(request.host):
        yield Mistake(f"invalid host address {_shown(request.host)}", path="host")
    elif not request.tls and not is_loopback(request.host):
        yield Mistake(
            f"{_shown(request.host)} would be contacted over the network without TLS",
            path="host",
            hint="listen on 127.0.0.1, or give borglet.toml a [tls]",
        )
    if not 1 <= request.port <= 65535:
        yield Mistake(f"{_digits(request.port)} is outside 1 to 65535", path="port")
    for path, text in (("boot_id", request.boot_id), ("instance", request.instance)):
        if not 0 < len(text) <= ID_CHARACTERS_MAX or not text.isprintable():
            yield Mistake(f"must be 1 to {ID_CHARACTERS_MAX} printable characters", path=path)


def _is_host(text: str) -> bool:
    try:
        return ipaddress.ip_address(text) is not None and "%" not in text
    except ValueError:
        return len(text) <= HOST_CHARACTERS_MAX and _HOST.fullmatch(text) is not None


def _in_facts(facts: Facts, at: str) -> Iterator[Mistake]:
    yield from _in_capacity(facts.capacity, f"{at}capacity.")
    yield from _in_attributes(facts.attributes, f"{at}attributes")
    if not 1 <= facts.ports_low <= facts.ports_high <= 65535:
        low, high = _digits(facts.ports_low), _digits(facts.ports_high)
        yield Mistake(f"{low}-{high} is not a range within 1-65535", path=f"{at}ports_low")
    yield from _in_images(facts.images, f"{at}images")
    yield from _in_attributes(facts.confinement, f"{at}confinement")
    if len(set(facts.runtimes)) != len(facts.runtimes):
        yield Mistake("lists a runtime twice", path=f"{at}runtimes")


def _in_capacity(capacity: Resources, at: str) -> Iterator[Mistake]:
    amounts = {name: getattr(capacity, name) for name in ("cpu_millis", "ram_bytes", "disk_bytes")}
    for name, amount in amounts.items():
        if not 0 <= amount <= AMOUNT_MAX:
            yield Mistake(f"{_digits(amount)} is outside 0 to {AMOUNT_MAX}", path=at + name)
    if len(capacity.named) > NAMED_AMOUNTS_MAX:
        yield Mistake(f"more than {NAMED_AMOUNTS_MAX} amounts", path=f"{at}named")
        return
    for name, amount in capacity.named.items():
        if not _NAME.fullmatch(name) or not 0 <= amount <= NAMED_MAX:
            yield Mistake(f"{_shown(name)}: invalid name, or outside 0 to {NAMED_MAX}", path=f"{at}named")
    if len(capacity.devices) > NAMED_AMOUNTS_MAX:
        yield Mistake(f"more than {NAMED_AMOUNTS_MAX} kinds", path=f"{at}devices")
        return
    for kind, millis in capacity.devices.items():
        if not _NAME.fullmatch(kind) or millis not in _WHOLE_DEVICES:
            what = f"no name, or not 0 to {DEVICES_MAX} whole devices"
            yield Mistake(f"{_shown(kind)}: {what}", path=f"{at}devices")


def _in_images(images: Mapping[str, str], at: str) -> Iterator[Mistake]:
    if len(images) > IMAGES_MAX:
        yield Mistake(f"more than {IMAGES_MAX} images", path=at)
        return
    for name, arch in images.items():
        if not (0 < len(name) <= IMAGE_CHARACTERS_MAX and len(arch) <= KEY_CHARACTERS_MAX):
            yield Mistake(f"{_shown(name)} or its architecture is empty or too long", path=at)
        elif not (name.isprintable() and arch.isprintable()):
            yield Mistake(f"{_shown(name)} is not printable text", path=at)


def _in_attributes(attributes: Mapping[str, str], at: str) -> Iterator[Mistake]:
    if len(attributes) > ATTRIBUTES_MAX:
        yield Mistake(f"more than {ATTRIBUTES_MAX} attributes", path=at)
        return
    for name, value in attributes.items():
        if not 0 < len(name) <= KEY_CHARACTERS_MAX or len(value) > VALUE_CHARACTERS_MAX:
            hint = f"a name has 1 to {KEY_CHARACTERS_MAX}, a value at most {VALUE_CHARACTERS_MAX} characters"
            yield Mistake(f"{_shown(name)} is empty or too long", path=at, hint=hint)
        elif not (name.isprintable() and value.isprintable()):
            yield Mistake(f"{_shown(name)} is not printable text", path=at)


def _shown(text: str) -> str:
    return repr(text if len(text) <= KEY_CHARACTERS_MAX else text[:KEY_CHARACTERS_MAX] + "...")


def _digits(number: int) -> str:
    return str(number) if abs(number) < 10**20 else "a number of more than 20 digits"
