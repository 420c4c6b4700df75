"""A folder inside a folder, and so on: deeper than a path may be long, or than Python may call itself."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LEVELS = 2_500


@contextmanager
def deep_folder(top: Path, levels: int = LEVELS) -> Iterator[None]:
    """Make it, with a file at its bottom. What is left of it goes: pytest could not remove it."""
    top.mkdir(parents=True)
    try:
        here = os.open(top, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.close(here)
        yield
    finally:
        subprocess.run(["rm", "-rf", str(top)], check=True)
