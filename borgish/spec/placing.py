"""The fields of a job file that say where its tasks like to be, and beside whom: preferences, spread,
affinity, tolerations. ``fields`` has the rest.
"""

from borgish.spec.document import Node, Sequence
from borgish.spec.job import MACHINE, Affinity, Constraint, Preference, Spread, Toleration
from borgish.spec.kinds import ListOf, Place, Schema, Text, Whole, Wrong
from borgish.spec.mistakes import quote
from borgish.spec.records import Field, Record, Values
from borgish.spec.values import Condition, duration
from borgish.vocabulary import TAINT_KEY_PATTERN, TAINT_VALUE_PATTERN, TASKS_PER_JOB_MAX

WEIGHT_MAX = 100
_FOR_SECONDS_MAX = 366 * 86_400

_ATTRIBUTE = Text(63, r"[A-Za-z_][A-Za-z0-9_./-]*", "an attribute of machines, like rack")
_TAINT_KEY = Text(63, TAINT_KEY_PATTERN, "a taint's key, like maintenance")
_TAINT_VALUE = Text(253, TAINT_VALUE_PATTERN, "letters, digits and . _ / - inside")
_WEIGHT = Whole(1, WEIGHT_MAX)


class Labels:
    """Conditions on labels: one expression, or a list of which all must hold."""

    _one = Condition()
    _several = ListOf(_one, 16, '"app == db"')

    def read(self, node: Node, place: Place, /) -> tuple[Constraint, ...]:
        if isinstance(node, Sequence):
            if not node.items:
                raise Wrong("no condition is given", 'write "app == db"')
            return self._several.read(node, place)
        return (self._one.read(node, place),)

    def schema(self) -> Schema:
        return {"anyOf": [self._one.schema(), self._several.schema()]}


_PREFER_FIELDS = (
    Field("when", Condition(), "a condition on machines, like disk == ssd", required=True),
    Field("weight", _WEIGHT, "how much such machines are liked, 1 to 100; 1 unless given"),
)


def _make_preference(values: Values) -> Preference | None:
    return Preference(**values.given) if "when" in values.given else None


_PREFERENCE = Record("a preference", _PREFER_FIELDS, '{when: "disk == ssd", weight: 10}', _make_preference)
PREFER = ListOf(_PREFERENCE, 32, '[{when: "disk == ssd", weight: 10}]')

_SPREAD_FIELDS = (
    Field("over", _ATTRIBUTE, "an attribute of machines, like rack; machine unless given"),
    Field("max", Whole(1, TASKS_PER_JOB_MAX), "at most so many tasks on each of its values; else even"),
)


class _SpreadList(ListOf[Spread]):
    """Spreads, each over another attribute."""

    def read(self, node: Node, place: Place, /) -> tuple[Spread, ...]:
        spreads = super().read(node, place)
        seen: set[str] = set()
        for spread in spreads:
            if spread.over in seen:
                place.tell(node, f"{quote(spread.over)} is given twice", "keep one of them")
            seen.add(spread.over)
        return spreads


_SPREAD = Record("a spread", _SPREAD_FIELDS, "{over: rack, max: 2}", lambda values: Spread(**values.given))
SPREAD = _SpreadList(_SPREAD, 8, "[{over: rack, max: 2}]")

_AFFINITY_FIELDS = (
    Field("labels", Labels(), "whose tasks: conditions on the labels of their jobs", required=True),
    Field("over", _ATTRIBUTE, f"an attribute of machines, like rack; {MACHINE} unless given"),
    Field("weight", _WEIGHT, "how much it is liked, 1 to 100; without a weight it must be so"),
)


def _make_affinity(values: Values) -> Affinity | None:
    return Affinity(**values.given) if values.given.get("labels") else None


_AFFINITY = Record("an affinity", _AFFINITY_FIELDS, '{labels: "app == db", over: rack}', _make_affinity)
AFFINITIES = ListOf(_AFFINITY, 16, '[{labels: "app == db", over: rack}]')

_TOLERATION_FIELDS = (
    Field("taint", _TAINT_KEY, "the taint's key", required=True),
    Field("value", _TAINT_VALUE, "its value; any unless given"),
    Field(
        "for",
        duration(0, _FOR_SECONDS_MAX, "1h"),
        "how long tasks may stay where it evicts; for good unless given",
        "for_seconds",
    ),
)


def _make_toleration(values: Values) -> Toleration | None:
    return Toleration(**values.given) if "taint" in values.given else None


_TOLERATION = Record("a toleration", _TOLERATION_FIELDS, "{taint: maintenance, for: 1h}", _make_toleration)
TOLERATIONS = ListOf(_TOLERATION, 32, "[{taint: dedicated, value: ml}]")
