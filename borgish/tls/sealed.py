"""A cell's secrets in one file, sealed by a passphrase, as they are carried to another master's host.

AES-256-GCM, under a key that scrypt makes of the passphrase; what the file says in clear, as the cell's name,
is authenticated with it. A passphrase that was drawn has 160 bits: whoever has the file alone has nothing.
"""

import base64
import hashlib
import os
import secrets

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from borgish.errors import Invalid

FORMAT = "borgish sealed cell 1"
FILE_BYTES_MAX = 256 * 1024
PASSPHRASE_CHARACTERS_MIN = 16
SCRYPT_N = 2**17
"""With 8 blocks it takes 128 MiB and half a second to try a passphrase."""
_SCRYPT_R, _SCRYPT_P = 8, 1
_SCRYPT_N_MAX = 2**20
_KEY_BYTES, _SALT_BYTES, _NONCE_BYTES = 32, 16, 12
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # without l, o, 0 and 1: it is read and typed by people
_GROUPS, _GROUP_CHARACTERS = 8, 4


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in clear, and is authenticated. ``salt`` and ``nonce`` in base64."""

    format: str
    cell: str
    scrypt_n: int
    salt: str
    nonce: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    head: _Head
    sealed: str  # base64


def draw_passphrase() -> str:
    """Return a passphrase nobody knows: eight groups of four characters, 160 bits."""
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(_GROUP_CHARACTERS)) for _ in range(_GROUPS))
    return "-".join(groups)


def seal(cell: str, files: dict[str, str], passphrase: str) -> bytes:
    """Return files, by name, sealed as those of a cell. Raises Invalid for a passphrase that is too short."""
    if len(passphrase) < PASSPHRASE_CHARACTERS_MIN:
        raise Invalid(
            f"the passphrase has {len(passphrase)} characters, and needs {PASSPHRASE_CHARACTERS_MIN}",
            "Leave out --passphrase-file to have one drawn",
        )
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    head = _Head(FORMAT, cell, SCRYPT_N, _to_text(salt), _to_text(nonce))
    cipher = AESGCM(_key(passphrase, salt, SCRYPT_N))
    sealed = cipher.encrypt(nonce, msgspec.json.encode(files), msgspec.json.encode(head))
    file = _File(head, _to_text(sealed))
    return msgspec.json.format(msgspec.json.encode(file)) + b"\n"


def unseal(content: bytes, passphrase: str) -> tuple[str, dict[str, str]]:
    """Return the cell whose files were sealed, and these by name.

    Raises Invalid for what is no such file, for another passphrase, and for a file that was changed.
    """
    try:
        file = msgspec.json.decode(content, type=_File)
        head = file.head
        salt, nonce, sealed = (
            base64.b64decode(it, validate=True) for it in (head.salt, head.nonce, file.sealed)
        )
        fits = head.format == FORMAT and 1 < head.scrypt_n <= _SCRYPT_N_MAX and len(nonce) == _NONCE_BYTES
        if not fits or head.scrypt_n & (head.scrypt_n - 1):
            raise ValueError("another format")
    except ValueError:  # msgspec's errors are of this kind, and so are those of base64
        raise Invalid(
            "this is not a file of `borgctl cell seal`",
            "Or another version of borgish wrote it, or it was cut off",
        ) from None
    try:
        cipher = AESGCM(_key(passphrase, salt, head.scrypt_n))
        opened = cipher.decrypt(nonce, sealed, msgspec.json.encode(head))
    except InvalidTag:
        raise Invalid(
            "the passphrase does not open this file, or the file was changed",
            "Give the passphrase that `borgctl cell seal` printed with this very file, or seal anew",
        ) from None
    return head.cell, msgspec.json.decode(opened, type=dict[str, str])


def _key(passphrase: str, salt: bytes, n: int) -> bytes:
    memory = 128 * n * _SCRYPT_R + 2**20
    password = passphrase.encode()
    return hashlib.scrypt(password, salt=salt, n=n, r=_SCRYPT_R, p=_SCRYPT_P, maxmem=memory, dklen=_KEY_BYTES)


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
