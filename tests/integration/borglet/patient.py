"""``borglet``, which at its end would wait long for whatever is open: a test would see that it waits."""

from borgish.borglet import server
from borgish.borglet.main import main as borglet

SHUTDOWN_SECONDS = 600


def main() -> None:
    """Run until a signal asks to stop."""
    server.SHUTDOWN_SECONDS = SHUTDOWN_SECONDS
    borglet()
