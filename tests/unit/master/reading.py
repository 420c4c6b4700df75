"""Checkpoints read back in the process of the test: to start one for each takes a third of a second."""

import pytest

from borgish.master.past import checkpoints
from borgish.master.past.checkpoint_contents import Inspection, inspect_file, packed
from borgish.store.base import CheckpointInfo


def read_back_here(patch: pytest.MonkeyPatch) -> None:
    """Let nobody start a process; ``test_checkpoint_contents.py`` holds that one says the same."""

    def inspect(cell: str, info: CheckpointInfo, stored: bytes) -> Inspection:
        return inspect_file(packed(cell, info, stored))

    patch.setattr(checkpoints, "inspect_checkpoint", inspect)
