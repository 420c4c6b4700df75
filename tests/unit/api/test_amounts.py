"""Sums of amounts."""

from borgish.api.views.sums import total
from borgish.resources import Resources


def test_all_kinds_are_added_up() -> None:
    one = Resources(100, 2**20, 2**30, {"licences": 1}, {"gpu": 500})
    other = Resources(50, 0, 0, {}, {"gpu": 2000, "tpu": 1000})
    assert total([(one, 2), (other, 1)]) == Resources(
        250, 2**21, 2**31, {"licences": 2}, {"gpu": 3000, "tpu": 1000}
    )
