"""What all events have in common; see ``events``."""

import msgspec


class Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Base of all events; ``type`` in JSON is the class's name."""
