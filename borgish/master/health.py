"""How one borgmaster is, in the shape that its API shows."""

import os
import socket

import borgish
from borgish.wire.api import HealthView, StatusView

LEADER, STANDBY = "leader", "standby"


def holder_here() -> str:
    """Return what this process is called where it leads: host and number."""
    return f"{socket.gethostname()}:{os.getpid()}"


def leader_health(status: StatusView, address: str) -> HealthView:
    """Return the health of one who leads, at a moment when all in memory is durable."""
    return HealthView(
        cell=status.cell,
        version=borgish.__version__,
        role=LEADER,
        address=address,
        leader=address,
        holder=holder_here(),
        timeline=status.timeline,
        epoch=status.epoch,
        position=status.position,
        warm=True,
        behind_seconds=0.0,
        trouble="; ".join(status.refusing),
        started_at=status.started_at,
    )
