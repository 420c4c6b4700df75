"""What containers use, from their control groups.

The engine has figures too, but takes a second for each container to tell them. Of an engine on
another machine nothing is told.
"""

from pathlib import Path

from borgish.borglet.runtimes import cgroups
from borgish.borglet.runtimes.docker_container import Container
from borgish.borglet.runtimes.usage import Used
from borgish.wire.link import Usage, split_attempt_key


class Meter:
    """Finds the groups of each container once, and remembers its last reading: use is a difference."""

    def __init__(self) -> None:
        self._folders: dict[str, list[str]] = {}  # by container id
        self._before: dict[str, Used] = {}  # by container id

    def read(self, containers: list[Container], mono: float) -> list[Usage]:
        """Return what each running container uses. Reads files: call it from a thread, one at a time."""
        now = {container.id: used for container in containers if (used := self._used(container, mono))}
        self._folders = {c.id: self._folders[c.id] for c in containers}
        before, self._before = self._before, now
        return [
            Usage(
                who[0], who[1], now[c.id].cpu_millis_since(before.get(c.id, now[c.id])), now[c.id].ram_bytes
            )
            for c in containers
            if c.id in now and (who := split_attempt_key(c.key))
        ]

    def _used(self, container: Container, mono: float) -> Used | None:
        if not self._folders.get(container.id):
            self._folders[container.id] = _folders(container)
        used = cgroups.used(self._folders[container.id])
        return Used(mono, *used) if used else None


def _folders(container: Container) -> list[str]:
    """Return the groups of a container that count cpu and memory; none when it has just ended."""
    pid = container.state.pid if container.state else 0
    try:
        of_container = (Path("/proc") / str(pid) / "cgroup").read_text()
        of_machine = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return []
    if container.id not in of_container:
        return []
    mounts = cgroups.mounts(of_machine, of_container)
    counting = [mount.own for mount in mounts if mount.controllers & {"cpuacct", "memory"}]
    return counting or [mount.own for mount in mounts if mount.version == 2]
