"""How one borgmaster is: its health, as the API shows it, and figures of its cell for Prometheus."""

import math
import os
import socket

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

import borgish
from borgish.api.views.status import Daemon
from borgish.cell.model import Cell
from borgish.text import instant
from borgish.wire.api import HealthView, StatusView

LEADER, STANDBY = "leader", "standby"
_TURN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


def holder_here() -> str:
    """Return what this process is called where it leads: host and number."""
    return f"{socket.gethostname()}:{os.getpid()}"


def leader_health(cell: Cell, daemon: Daemon, address: str) -> HealthView:
    """Return the health of one who leads, at a moment when all in memory is durable."""
    return HealthView(
        cell=cell.name,
        version=borgish.__version__,
        role=LEADER,
        address=address,
        leader=address,
        holder=holder_here(),
        timeline=cell.timeline,
        epoch=cell.epoch,
        position=cell.position,
        warm=True,
        behind_seconds=0.0,
        trouble="; ".join(daemon.refusing),
        started_at=instant(daemon.started_at),
    )


class Metrics:
    """The figures, in a registry of their own: a few of the whole cell, none by task, job or machine.

    The daemon tells it what happens over time; what can be read from the status is taken from it at each
    scrape.
    """

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self._position = Gauge("borgish_journal_position", "Last durable position", registry=registry)
        self._epoch = Gauge("borgish_epoch", "Elections so far", registry=registry)
        self._machines = Gauge("borgish_machines", "Machines in the cell", ["state"], registry=registry)
        self._refusing = Gauge(
            "borgish_refusing", "Reasons for which commands are refused now", registry=registry
        )
        self._free = Gauge(
            "borgish_store_free_bytes", "Free on the disk of an SQLite database", registry=registry
        )
        self._jobs = Gauge("borgish_jobs", "Jobs in the cell", registry=registry)
        self._tasks = Gauge("borgish_tasks", "Tasks by state", ["state"], registry=registry)
        self._tasks_up = Gauge(
            "borgish_tasks_up", "Running tasks that are up, and healthy where probed", registry=registry
        )
        self._certificates = Gauge(
            "borgish_certificate_seconds_left",
            "Until the first certificate of a role ends",
            ["role"],
            registry=registry,
        )
        self._near = Gauge(
            "borgish_certificates_near_end",
            "Certificates near their end that were not renewed",
            ["role"],
            registry=registry,
        )
        self._turns = Histogram(
            "borgish_turn_seconds",
            "From taking inputs to releasing what follows",
            registry=registry,
            buckets=_TURN_BUCKETS,
        )

    def turn(self, seconds: float) -> None:
        """Take note of one turn and how long it took."""
        self._turns.observe(seconds)

    def render(self, status: StatusView) -> bytes:
        """Return all figures as Prometheus reads them."""
        self._position.set(status.position)
        self._epoch.set(status.epoch)
        self._machines.labels("up").set(status.machines_up)
        self._machines.labels("down").set(status.machines - status.machines_up)
        self._refusing.set(len(status.refusing))
        self._free.set(math.nan if status.store_free_bytes is None else status.store_free_bytes)
        self._jobs.set(status.jobs)
        self._tasks.labels("pending").set(status.pending)
        self._tasks.labels("running").set(status.running)
        self._tasks.labels("dead").set(status.dead)
        self._tasks_up.set(status.up or 0)
        for gauge in (self._certificates, self._near):
            gauge.clear()
        for each in status.certificates:
            self._certificates.labels(each.role).set(each.seconds_left)
            self._near.labels(each.role).set(each.near)
        return generate_latest(self.registry)
