"""How values of secrets are kept: sealed under a key that derives from the cell's ``secret`` file.

AES-SIV (RFC 5297) with keys of 256 bits: what is sealed cannot be read or changed without the key, nor taken
for another secret. It needs no nonce, so the same value of the same secret is sealed into the same bytes, and
a request that is sent again is the same request; that two versions are equal is all that can be seen.
"""

import hmac
from typing import TYPE_CHECKING

from borgish.errors import UnsafeConfiguration

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV


class Sealer:
    """Seals and opens with the key of one cell; ``secret`` is what is in its file of that name."""

    def __init__(self, secret: str) -> None:
        self._key = hmac.digest(secret.encode(), b"secrets", "sha512")

    def __repr__(self) -> str:
        return "Sealer(***)"

    def seal(self, key: str, value: bytes) -> bytes:
        """Return the sealed value of the secret of this key (``user/name``)."""
        return self._cipher().encrypt(b"\0" + value, [key.encode()])  # no empty text can be sealed

    def open(self, key: str, sealed: bytes) -> bytes:
        """Return the value. Raises UnsafeConfiguration where it was sealed under another key, or is another
        secret's."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher().decrypt(sealed, [key.encode()])[1:]
        except InvalidTag:
            raise UnsafeConfiguration(
                f"the secret {key} cannot be opened with the `secret` file of this borgmaster",
                "bring back the file that the cell had, or set the secret anew: `borgctl secret set`",
            ) from None

    def _cipher(self) -> "AESSIV":
        # Most cells on one host have no secrets, and the library takes time to load, and memory.
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        return AESSIV(self._key)
