"""Cutting bodies into parts that fit into an MPUB."""

from __future__ import annotations

import pytest

from nsqclient.publishing.parts import MAX_PER_MPUB, split


@pytest.mark.parametrize(
    ("sizes", "limit", "parts"),
    [
        ([], 100, []),
        ([10, 10], 100, [2]),
        ([10, 10], 4 + 2 * 14, [2]),
        ([10, 10], 4 + 2 * 14 - 1, [1, 1]),
        ([500, 1, 1], 100, [1, 2]),
    ],
)
def test_parts_fit(sizes, limit, parts):
    """Each part with its headers is within the limit, unless one body alone is over it."""
    assert [len(part) for part in split([b"x" * size for size in sizes], limit)] == parts


def test_parts_are_of_limited_count():
    """However small the messages are, an MPUB has only so many."""
    assert [len(part) for part in split([b"x"] * (MAX_PER_MPUB + 1), 10**9)] == [MAX_PER_MPUB, 1]
