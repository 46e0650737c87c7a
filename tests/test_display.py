"""Numbers as texts show them."""

from __future__ import annotations

import pytest

from nsqclient.display import counted


@pytest.mark.parametrize("count, words, text", [
    (0, ["failure"], "0 failures"), (1, ["failure"], "1 failure"), (2, ["failure"], "2 failures"),
    (1, ["reply", "replies"], "1 reply"), (2, ["reply", "replies"], "2 replies"),
    (1000, ["nsqd"], "1000 nsqds"),
])
def test_one_has_the_singular_and_every_other_number_the_plural(count, words, text):
    """The noun of a number, for log lines and errors."""
    assert counted(count, *words) == text
