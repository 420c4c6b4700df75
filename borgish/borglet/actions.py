"""What the core asks of the runtimes: plain records, no behaviour."""

import msgspec

from borgish.spec.job import Health
from borgish.wire.link import AttemptSpec


class Start(msgspec.Struct, frozen=True):
    """Start a run. Answer with ``core.ran`` or ``core.start_failed``."""

    spec: AttemptSpec
    run: int

    @property
    def key(self) -> str:
        return self.spec.key


class Renew(msgspec.Struct, frozen=True):
    """Let the run of an attempt, or its next one, go on until then, in seconds of ``Now.boot``. No answer."""

    spec: AttemptSpec
    until: float

    @property
    def key(self) -> str:
        return self.spec.key


class Signal(msgspec.Struct, frozen=True):
    """Send a signal (TERM, INT ...; without SIG) to the live run. Its end comes by ``core.ran``."""

    key: str
    signal: str


class Kill(msgspec.Struct, frozen=True):
    """End the live run now. Its end comes by ``core.ran``."""

    key: str


class Probe(msgspec.Struct, frozen=True):
    """Probe the live run once. Answer with ``core.probed``, within the probe's timeout."""

    key: str
    run: int
    health: Health
    port: int = 0  # the number behind ``health.port``; 0 for a command


class Forget(msgspec.Struct, frozen=True):
    """Let the runtime let go of an ended attempt; the master has its end for good. Answer with
    ``core.forgotten``: until then the ledger keeps it, lest the runtime bring it back as unknown."""

    key: str
    keep_seconds: float = 0.0  # as ``AttemptSpec.keep_output_seconds``


Action = Start | Renew | Signal | Kill | Probe | Forget
