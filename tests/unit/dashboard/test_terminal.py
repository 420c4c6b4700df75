"""What is pressed, as it comes from a descriptor."""

import os
from collections.abc import Iterator

import pytest

from borgish.dashboard.terminal import Bell, Keys


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_character_of_several_bytes_is_one_also_when_it_comes_in_two_reads(pipe: tuple[int, int]) -> None:
    keys, bell, typed = Keys(pipe[0]), Bell(), ""
    for piece in ("é漢".encode()[:3], "é漢".encode()[3:], b"q"):
        os.write(pipe[1], piece)
        typed += keys.wait(1.0, bell) or ""
    assert typed == "é漢q"
