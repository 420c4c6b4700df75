"""The text of a job file, before it is read as YAML: size, encoding, characters, and JSON's habits."""

import json
import re

from borgish.spec.mistakes import Found, lines_of
from borgish.vocabulary import BODY_BYTES_MAX

# Outside stands what YAML does not allow, what ends a line in YAML 1.1 only (U+0085, U+2028, U+2029),
# and a byte order mark that is not at the front.
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_DIRECTIVE = re.compile(r"(?:^|(?<=[\r\n]))%")
# A backslash counts when an even number of them stands before it.
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)


def decode(source: str | bytes) -> str:
    """Return the text of a file, fit to be parsed. Raises Invalid where it is not."""
    _refuse_size(source)
    text = _utf8(source) if isinstance(source, bytes) else source
    text = text.removeprefix("\ufeff")
    _refuse_characters(text)
    return text


def _refuse_size(source: str | bytes) -> None:
    size = len(source) if isinstance(source, bytes) else len(source.encode("utf-8", "replace"))
    if size > BODY_BYTES_MAX:
        found = Found("")
        message = f"the file has {size} bytes; at most {BODY_BYTES_MAX} (1 MiB) are read"
        found.tell(0, 0, message, "split it into several jobs")
        raise found.invalid()


def _utf8(source: bytes) -> str:
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        good = source[: error.start].decode("utf-8")
        found = Found(source.decode("utf-8", "replace"))
        message = f"the byte 0x{source[error.start]:02x} is not UTF-8"
        found.tell(*_position(good, len(good)), message, "save the file in the UTF-8 encoding")
        raise found.invalid() from None


def _refuse_characters(text: str) -> None:
    found = Found(text)
    if match := _FORBIDDEN.search(text):
        code = ord(match[0])
        hint = f'remove it; a value that needs it can hold "\\u{code:04x}" in double quotes'
        if code == 0 or 0xD800 <= code < 0xE000:
            hint = "remove it"
        found.tell(*_position(text, match.start()), f"the character U+{code:04X} cannot stand here", hint)
    elif match := _DIRECTIVE.search(text):
        hint = "remove the line; text that begins with % needs quotes"
        found.tell(*_position(text, match.start()), "a YAML directive (a line that begins with %)", hint)
    found.stop()


def _position(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset into a text."""
    lines = lines_of(text[:offset])
    return len(lines), len(lines[-1]) + 1


def json_as_yaml(text: str) -> str:
    """Bring valid JSON into the part of it that YAML 1.1 parsers read: no tabs, no surrogate pairs.

    Other text is returned as it is.
    """
    if not text.lstrip().startswith("{") or not ("\t" in text or _SURROGATE_PAIR.search(text)):
        return text
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return text
    # In valid JSON a raw tab is always white space between tokens.
    return _SURROGATE_PAIR.sub(_one_character, text.replace("\t", " "))


def _one_character(pair: re.Match[str]) -> str:
    return pair[1] + (bytes.fromhex(pair[2]) + bytes.fromhex(pair[3])).decode("utf-16-be")
