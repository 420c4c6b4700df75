"""What ``decide`` comes to."""

import msgspec

from borgish.cell.events import AnyEvent


class Decision(msgspec.Struct, frozen=True):
    """Events, the name it is about, and one sentence for whoever asked."""

    events: tuple[AnyEvent, ...]
    subject: str
    text: str
