"""What a job asks for beyond what every job may have.

The names stand in grants and in answers to users, so they keep their meaning for good:

    container-root         its containers run as root, or in root's group
    capability:NET_ADMIN   a capability of Linux in its containers
    mount:/srv/data        its containers read a folder of their machine
    mount-write:/srv/data  they also change what is in it
    host-root:/srv/roots   its programs see this folder of their machine as /

A machine may lack what is granted all the same: which folders it mounts is for its own file to say.
"""

import posixpath

from borgish.spec.container import CAPABILITIES
from borgish.spec.job import JobSpec

CONTAINER_ROOT = "container-root"
CAPABILITY = "capability:"
MOUNT = "mount:"
MOUNT_WRITE = "mount-write:"
HOST_ROOT = "host-root:"


def privileges_of(spec: JobSpec) -> tuple[str, ...]:
    """Return the names of what a job needs a grant for, each once; none for an ordinary job."""
    container = spec.container
    names = [CONTAINER_ROOT] if 0 in container.ids else []
    names += [CAPABILITY + name for name in container.capabilities]
    names += [(MOUNT_WRITE if mount.write else MOUNT) + mount.source for mount in container.mounts]
    names += [HOST_ROOT + spec.root] * bool(spec.root)
    return tuple(dict.fromkeys(names))


def is_privilege(name: str) -> bool:
    """Return whether a job can ask for a privilege of this name."""
    kind, _, what = name.partition(":")
    if f"{kind}:" == CAPABILITY:
        return what in CAPABILITIES
    if f"{kind}:" in (MOUNT, MOUNT_WRITE, HOST_ROOT):
        return what.startswith("/") and what == posixpath.normpath(what)
    return name == CONTAINER_ROOT
