"""What ``decide`` comes to."""

import msgspec

from borgish.cell.events import AnyEvent


class Decision(msgspec.Struct, frozen=True):
    """Events, the name it is about, one sentence for whoever asked, and what is doubtful about it."""

    events: tuple[AnyEvent, ...]
    subject: str
    text: str
    notes: tuple[str, ...] = ()
