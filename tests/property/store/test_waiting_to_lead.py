"""How long candidates wait where masters take the lead from one another."""

from hypothesis import given
from hypothesis import strategies as st

from borgish.store.election import TAKEOVER_DELAY_SECONDS_MAX, TERMS_STEADY, takeover_delay_seconds

terms = st.integers(0, 10_000)
leases = st.floats(0.1, 600.0)
shares = st.floats(0.0, 1.0)


@given(terms, leases, shares)
def test_it_is_bounded_and_nothing_after_a_steady_history(terms: int, lease: float, share: float) -> None:
    waited = takeover_delay_seconds(terms, lease, share)
    assert 0 <= waited <= TAKEOVER_DELAY_SECONDS_MAX
    assert (waited == 0) is (terms <= TERMS_STEADY)


@given(terms, leases, shares)
def test_more_terms_never_shorten_it(terms: int, lease: float, share: float) -> None:
    assert takeover_delay_seconds(terms, lease, share) <= takeover_delay_seconds(terms + 1, lease, share)


@given(st.integers(TERMS_STEADY + 1, 100), leases, shares, shares)
def test_candidates_wait_unequally_long(terms: int, lease: float, one: float, other: float) -> None:
    waits = sorted(takeover_delay_seconds(terms, lease, share) for share in (one, other))
    assert waits[1] <= 2 * waits[0]
    if abs(one - other) > 0.01:
        assert waits[0] < waits[1]
