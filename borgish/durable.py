"""What is to outlive a power cut."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make what a file holds durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
