"""Where the Docker engine of this machine listens, told without the docker SDK: most machines have none, and
the SDK would cost each of their borglets 0.2 s of start and 8 MB."""

import os
from pathlib import Path

from borgish.errors import Unreachable

SOCKET = "/var/run/docker.sock"
SILENT_HINT = "Look at it with `docker info`. Containers that run go on running."


def socket_path() -> str:
    """Return where the engine listens. Raises Unreachable where that is no file of this machine: who reaches
    an engine over a network is root on its machine, and what runs there cannot be watched from here."""
    address = os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"
    for scheme in ("unix://", "http+unix://"):
        if address.startswith(scheme):
            return f"/{address.removeprefix(scheme).lstrip('/')}"
    raise Unreachable(
        f"DOCKER_HOST={address} is no socket of this machine, and no engine is used over a network",
        "Unset DOCKER_HOST, or name a socket like unix:///var/run/docker.sock.",
    )


def expect_socket() -> None:
    """Raise Unreachable where no engine can be."""
    path = socket_path()
    if not Path(path).exists():
        raise Unreachable(f"no Docker engine answers (there is no {path})", SILENT_HINT)
