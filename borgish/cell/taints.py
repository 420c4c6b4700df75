"""Which taints of a machine a job tolerates, and for how long. Pure rules of scheduler and reconcilers."""

from collections.abc import Iterator

from borgish.cell.model import Taint
from borgish.spec.job import Toleration
from borgish.vocabulary import TaintEffect

_FOR_GOOD = float("inf")


def untolerated(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> Iterator[Taint]:
    """Yield the taints, of any effect, that none of the tolerations is for.

    A toleration that ends (``for_seconds``) counts; see ``leaves_at`` for when it does.
    """
    for taint in taints:
        if not any(_is_for(toleration, taint) for toleration in tolerations):
            yield taint


def leaves_at(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> float | None:
    """Return when tasks have to leave a machine with these taints, in seconds since 1970; None: never.

    Placed there later than that, they would have to leave at once.
    """
    ends = (_stays_until(tolerations, taint) for taint in taints if taint.effect is TaintEffect.EVICT)
    at = min(ends, default=_FOR_GOOD)
    return None if at == _FOR_GOOD else at


def _stays_until(tolerations: tuple[Toleration, ...], taint: Taint) -> float:
    """Return until when the most patient of the tolerations lets tasks stay beside a taint."""
    patience = [toleration.for_seconds for toleration in tolerations if _is_for(toleration, taint)]
    return taint.since + max((_FOR_GOOD if s is None else s for s in patience), default=0.0)


def _is_for(toleration: Toleration, taint: Taint) -> bool:
    return toleration.taint == taint.key and toleration.value in ("", taint.value)
