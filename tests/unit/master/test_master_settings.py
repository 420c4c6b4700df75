from pathlib import Path

import pytest

from borgish.errors import UnsafeConfiguration
from borgish.master.settings import read_settings


def test_a_machine_is_not_down_before_one_poll_can_have_failed(tmp_path: Path) -> None:
    file = tmp_path / "cell.toml"
    file.write_text('name = "local"\n[poll]\nhold_seconds = 20\n')
    with pytest.raises(UnsafeConfiguration, match="less than one poll may take"):
        read_settings(file)
    file.write_text('name = "local"\n[poll]\nhold_seconds = 20\ndown_after_seconds = 60\n')
    assert read_settings(file).poll.hold_seconds == 20
