"""What people read about an attempt: short sentences, no codes without their meaning."""

from borgish.borglet.attempts.failures import signal_name
from borgish.resources import show_bytes
from borgish.spec.job import Health, Restart
from borgish.vocabulary import OnExit, Runtime
from borgish.wire.link import AttemptSpec, Exit

UNKNOWN = "found running; waits for its assignment"
NO_LEASE = "starts when this machine hears of the borgmaster: its job is exclusive"
TRIES_WORD = {1: "1 try left"}


def span(seconds: float) -> str:
    """Write a duration as in a sentence: ``4 s``, ``5 min``, ``2 h``."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def when(seconds: float) -> str:
    """Write when something follows: ``at once``, ``in 4 s``."""
    return f"in {span(seconds)}" if seconds > 0 else "at once"


def exit_text(exit_: Exit, spec: AttemptSpec | None) -> str:
    """Say how a program ended."""
    if exit_.oom:
        limit = f" of {show_bytes(spec.resources.ram_bytes)}" if spec else ""
        return f"out of memory: it reached its limit{limit}; raise resources.ram"
    if exit_.code is not None:
        text = f"exit code {exit_.code}"
    elif exit_.signal == 9 and spec and spec.runtime is Runtime.DOCKER and not exit_.reason:
        return _killed_by_others(spec.resources.ram_bytes)
    elif exit_.signal is not None:
        text = f"ended by signal {signal_name(exit_.signal)}"
    else:
        return exit_.reason or "exit unknown"
    return f"{exit_.reason} ({text})" if exit_.reason else text


def _killed_by_others(ram_bytes: int) -> str:
    """An engine does not see that a container's very first moments take too much memory."""
    hint = f"; maybe its memory limit of {show_bytes(ram_bytes)}" if ram_bytes else ""
    return f"killed by signal 9 by somebody else than borgish{hint}"


def unkillable(pid: int) -> str:
    """Say that a program goes on though it was killed."""
    which = f"the program (pid {pid})" if pid else "the program"
    return f"{which} was killed and goes on: the kernel may wait for a disk or NFS; `ps -o wchan` says"


def restarts(text: str, delay_seconds: float) -> str:
    """Say that a program ended and comes back."""
    return f"{text}; restarts {when(delay_seconds)}"


def exhausted(text: str, restart: Restart) -> str:
    """Say that a task failed too often."""
    times = "once" if restart.attempts == 1 else f"{restart.attempts} times"
    within = "" if restart.counts_for_life else f" within {span(restart.within_seconds)}"
    return f"{text}; failed {times}{within}, the limit of its restart.attempts"


_RULED = {
    OnExit.FAIL: "{}, which is final by on_exit",
    OnExit.FINISH: "{}, which is success by on_exit",
    OnExit.RESTART: "{}, which on_exit does not count",
}


def ruled(text: str, do: OnExit) -> str:
    """Say that a rule of its job decides what follows."""
    return _RULED[do].format(text)


def cannot_start(text: str, tries_left: int) -> str:
    """Say that a start cannot work here, and how often it is still tried."""
    left = TRIES_WORD.get(tries_left, f"{tries_left} tries left")
    return f"cannot start: {text}; {left}"


def tries_again(text: str, delay_seconds: float) -> str:
    """Say that a start did not work and is tried again."""
    return f"cannot start: {text}; tries again {when(delay_seconds)}"


def missed_probe(text: str, misses: int, health: Health) -> str:
    """Say that a probe got no good answer; in the time of grace it counts for nothing."""
    if not misses:
        return f"does not answer its probe yet: {text}"
    return f"probe failed {misses} of {health.failures} times: {text}"


def unhealthy(text: str, health: Health) -> str:
    """Say why an unhealthy program is stopped."""
    return f"unhealthy: probe failed {health.failures} times in a row: {text}"


def too_long(seconds: float) -> str:
    """Say that a task reached its max_runtime."""
    return f"ran for its max_runtime of {span(seconds)}"


def forced(why: str, signal: str, grace_seconds: float) -> str:
    """Say that a program had to be killed."""
    return f"{why}; did not end within {span(grace_seconds)} of signal {signal}, was killed"
