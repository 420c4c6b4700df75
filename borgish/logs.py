"""What the daemons write to their log: a line a record, which nobody forges, and no secret of the cell."""

import logging
import re
from types import TracebackType

from borgish.join_token import MARK
from borgish.text import safe

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TOKEN = re.compile(rf"(\bbgt_|{MARK}[0-9a-f]{{0,64}}::|\b[Bb]earer )[A-Za-z0-9_-]+")
_PASSWORD = re.compile(r"(://[^\s/:@]{0,256}:)[^\s/@]{1,256}@")  # in the address of a database
_CONTINUED = "    | "


def log_to_stderr() -> None:
    """Have what is logged from now on written like this."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of what any stranger sends


class OneLine(logging.Formatter):
    """One line a record, whatever it holds: names and messages of others cannot forge lines or reach the
    terminal's controls. A traceback comes below it, each line marked."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return _plain(super().formatMessage(record))

    def formatException(  # noqa: N802
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"{_CONTINUED}{_plain(line)}" for line in lines)


def _plain(text: str) -> str:
    return safe(_PASSWORD.sub(r"\1***@", _TOKEN.sub(r"\1***", text)))
