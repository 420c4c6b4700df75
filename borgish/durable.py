"""Files that outlive a power cut, and that only their owner reads."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make what a file holds durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read: an ``opener`` of ``open``."""
    return os.open(path, flags, 0o600)
