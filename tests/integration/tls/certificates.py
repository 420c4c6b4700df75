"""Certificates of cells for tests: an authority each, and files that its members show."""

from pathlib import Path

from borgish.clock import SystemClock
from borgish.tls.authority import Authority, new_key, request_to_sign

DAY = 86400.0


class Signer:
    """The authority of a cell, which writes files as daemons have them."""

    def __init__(self, folder: Path, cell: str = "c1", mark: str = "") -> None:
        self.cell, self._folder, self._mark = cell, folder, mark or cell
        self.authority = Authority.make(cell, new_key(), SystemClock().now().wall - 40 * DAY)
        self.ca = self._written("authority", self.authority.pem)

    def master(self, days_ago: float = 0.0, hosts: tuple[str, ...] = ()) -> str:
        """Return the file of a master that was signed so long ago."""
        key = new_key()
        return self._written(
            f"master{days_ago:g}", self.authority.sign_master(self.cell, key, hosts, _at(days_ago)) + key
        )

    def machine(self, name: str, days_ago: float = 0.0) -> str:
        """Return the file of a machine that was signed so long ago."""
        key = new_key()
        request = request_to_sign(key, name)
        pem = self.authority.sign_machine(self.cell, name, request, _at(days_ago))
        return self._written(f"{name}-{days_ago:g}", pem + key)

    def _written(self, name: str, pem: bytes) -> str:
        path = self._folder / f"{self._mark}.{name}.pem"
        path.write_bytes(pem)
        return str(path)


def _at(days_ago: float) -> float:
    return SystemClock().now().wall - days_ago * DAY
