"""How much is tried: ``quick`` between two edits, ``ci`` for each change, ``nightly``, ``explore`` by hand.

A property says with ``examples`` how many it wants where others have a hundred; a test that goes over seeds
says with ``seeds`` how many each profile tries. Quick and ci try the same each time: a red run is about the
change.
"""

import hypothesis

EXAMPLES = {"quick": 20, "ci": 30, "nightly": 200, "explore": 1000}
DEFAULT = "ci"
_ALIKE_EACH_TIME = {"quick", "ci"}
_EXAMPLES_MIN = 4

# A busy machine is not a bug: no deadline, and slow generation of examples is no failure.
_BUSY_MACHINE = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])


def register() -> None:
    """Make the profiles known; ``--hypothesis-profile=NAME`` chooses another one than the default."""
    for name, count in EXAMPLES.items():
        hypothesis.settings.register_profile(
            name, _BUSY_MACHINE, max_examples=count, derandomize=name in _ALIKE_EACH_TIME
        )
    hypothesis.settings.load_profile(DEFAULT)


def examples(of_a_hundred: int) -> int:
    """Return how many examples a property tries that wants so many where others have a hundred."""
    return max(_EXAMPLES_MIN, of_a_hundred * _tried() // 100)


def seeds(quick: int, ci: int, nightly: int) -> range:
    """Return the seeds that the profile tries."""
    return range(quick if _tried() <= EXAMPLES["quick"] else ci if _tried() <= EXAMPLES["ci"] else nightly)


def _tried() -> int:
    return hypothesis.settings().max_examples  # of the profile, as of any settings that name none
