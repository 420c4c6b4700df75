"""What all commands have in common; see ``commands``."""

import msgspec


class Command(msgspec.Struct, frozen=True, tag_field="type"):
    """Base of all commands."""
