"""What all tests share: the groups that need something of the machine, and how properties are tried."""

import gc
import os
import signal
from pathlib import Path

import pytest

from tests.groups import LACKS, REQUIRED_BY, required
from tests.profiles import register

pytest_plugins = [f"tests.{file.stem}" for file in sorted(Path(__file__).parent.glob("fixtures_*.py"))]

register()

UMASK = os.umask(0)
os.umask(UMASK)

# Modules, tests and parameters are there to stay: going through them again and again for cycles that nobody
# refers to takes a third of the time of short tests.
gc.set_threshold(50_000, 20, 20)


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if unknown := required() - LACKS.keys():
        raise pytest.UsageError(f"{REQUIRED_BY} names no group of tests: {', '.join(sorted(unknown))}")


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    os.umask(UMASK)  # a test before may have called a daemon's main, which has its own
    # Without its mark a test would fail where there is no engine, and be counted in no group.
    if "docker_engine" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("docker"):
        pytest.fail("it asks for a Docker engine: mark it as docker", pytrace=False)
    for group, lacks in LACKS.items():
        if item.get_closest_marker(group) and (reason := lacks()):
            if group in required():
                pytest.fail(f"{REQUIRED_BY} wants {group}, but there is {reason}", pytrace=False)
            pytest.skip(f"{group}: {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which groups ran and which did not, and why."""
    for group, lacks in LACKS.items():
        asked = {
            report.nodeid
            for outcome in ("passed", "failed", "error", "skipped")
            for report in terminalreporter.getreports(outcome)
            if group in (keywords := getattr(report, "keywords", ()))  # none where collection failed
            and (group == "nightly" or "nightly" not in keywords or not LACKS["nightly"]())
        }
        if not asked:
            said = "no test of this group was in this run"
        elif reason := lacks():
            said = f"did NOT run, {len(asked)} tests: {reason}"
        else:
            said = f"ran, {len(asked)} tests"
        terminalreporter.write_line(f"{group}: {said}")
