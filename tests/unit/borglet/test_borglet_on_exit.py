"""What the rules of a job make of its program's end, on its machine."""

import pytest

from borgish.borglet.attempts.failures import what_follows
from borgish.spec.job import ExitCodes, ExitRule, Program, Restart
from borgish.vocabulary import Ending, OnExit, RestartPolicy
from borgish.wire.link import Exit
from tests.unit.borglet.test_borglet_core import STOP, Bench, make_spec

FAIL = ExitRule(OnExit.FAIL, (ExitCodes(42, 42), ExitCodes(64, 78)))
FINISH = ExitRule(OnExit.FINISH, (ExitCodes(3, 3), ExitCodes(64, 64)))
RESTART = ExitRule(OnExit.RESTART, (ExitCodes(75, 99),), ("KILL",))
RULES = (FAIL, FINISH, RESTART)


def bench(attempts: int = 2, policy: RestartPolicy = RestartPolicy.ON_FAILURE) -> Bench:
    bench = Bench(make_spec(restart=Restart(policy, attempts), on_exit=RULES))
    bench.began()
    return bench


@pytest.mark.parametrize(
    ("exit_", "expected"),
    [
        (Exit(code=42), OnExit.FAIL),
        (Exit(code=64), OnExit.FAIL),  # the first that matches counts
        (Exit(code=79), OnExit.RESTART),
        (Exit(code=3), OnExit.FINISH),
        (Exit(signal=9), OnExit.RESTART),
        (Exit(signal=9, oom=True), OnExit.RESTART),
        (Exit(signal=15), None),
        (Exit(signal=75), None),
        (Exit(code=9), None),
        (Exit(code=0), None),
        (Exit(), None),
    ],
)
def test_the_first_rule_that_matches_counts(exit_: Exit, expected: OnExit | None) -> None:
    assert what_follows(RULES, exit_) is expected


def test_what_is_final_gets_no_other_attempt() -> None:
    there = bench()
    there.ended(1, code=42)
    assert there.said.ended is Ending.FAIL
    assert there.said.reason == "exit code 42, which is final by on_exit"


def test_what_counts_as_success_is_finished() -> None:
    there = bench()
    there.ended(1, code=3)
    assert there.said.ended is Ending.FINISH
    assert there.said.reason == "exit code 3, which is success by on_exit"
    assert there.said.last_exit is not None
    assert there.said.last_exit.code == 3


@pytest.mark.parametrize("policy", [RestartPolicy.ON_FAILURE, RestartPolicy.NEVER])
def test_what_is_restarted_by_a_rule_is_not_counted(policy: RestartPolicy) -> None:
    there = bench(policy=policy)
    for run in range(1, 6):
        there.ended(run, code=80)
        assert there.said.ended is None
        assert there.said.reason.startswith("exit code 80, which on_exit does not count; restarts ")
        there.later(400.0)
        there.began(run + 1)
    there.ended(6, code=1)
    assert (there.said.ended is Ending.FAIL) == (policy is RestartPolicy.NEVER)


def test_an_end_that_was_asked_for_is_no_matter_of_rules() -> None:
    there = bench()
    there.assign(stop=(STOP,))
    there.ended(1, code=42)
    assert there.said.ended is Ending.KILL


def test_a_sidecar_has_no_rules() -> None:
    spec = make_spec(restart=Restart(RestartPolicy.ON_FAILURE), on_exit=RULES)
    assert spec.beside(Program("proxy", ("proxy",))).on_exit == ()
