"""The story that the README's first command tells."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEMO_SECONDS_MAX = 600


def test_the_demo_comes_to_its_end(tmp_path: Path) -> None:
    commands = Path(sys.executable).parent
    environ = {
        **os.environ,
        "BORGISH_DIR": str(tmp_path / "cell"),
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
    }
    demo = [sys.executable, str(ROOT / "scripts" / "demo.py")]
    try:
        told = subprocess.run(
            demo, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=DEMO_SECONDS_MAX, check=False
        )
        assert told.returncode == 0, told.stdout + told.stderr
        assert "replaced: pid" in told.stdout
        assert "Nothing: every task is placed." in told.stdout
    finally:
        down = [str(commands / "borgctl"), "down", "--purge", "--yes"]
        subprocess.run(down, env=environ, check=True, capture_output=True, timeout=DEMO_SECONDS_MAX)
