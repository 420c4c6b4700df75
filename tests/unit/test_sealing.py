"""Values of secrets under the cell's key."""

import pytest

from borgish.errors import UnsafeConfiguration
from borgish.sealing import Sealer

SEALER = Sealer("s" * 64)


@pytest.mark.parametrize("value", [b"\0", b"swordfish", b"two\nlines\n", bytes(range(256)) * 256])
def test_what_was_sealed_opens_to_what_it_was(value: bytes) -> None:
    sealed = SEALER.seal("ann/db", value)
    assert SEALER.open("ann/db", sealed) == value
    assert value == b"\0" or value not in sealed
    assert SEALER.seal("ann/db", value) == sealed, "a request that is sent again is the same request"


@pytest.mark.parametrize(
    ("sealer", "key"), [(Sealer("t" * 64), "ann/db"), (SEALER, "ann/other"), (SEALER, "bob/db")]
)
def test_nothing_opens_under_another_key_or_for_another_secret(sealer: Sealer, key: str) -> None:
    sealed = SEALER.seal("ann/db", b"swordfish")
    with pytest.raises(UnsafeConfiguration, match=f"{key} cannot be opened"):
        sealer.open(key, sealed)


def test_a_value_that_was_changed_does_not_open() -> None:
    sealed = bytearray(SEALER.seal("ann/db", b"swordfish"))
    sealed[-1] ^= 1
    with pytest.raises(UnsafeConfiguration):
        SEALER.open("ann/db", bytes(sealed))
