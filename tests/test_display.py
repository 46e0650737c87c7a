"""Numbers as texts show them."""

from __future__ import annotations

import pytest

from nsqclient.display import counted


@pytest.mark.parametrize("count, words, text", [
    (0, ["failure"], "0 failures"), (1, ["failure"], "1 failure"),
    (1, ["reply", "replies"], "1 reply"), (2, ["reply", "replies"], "2 replies"),
])
def test_one_has_the_singular_and_every_other_number_the_plural(count, words, text):
    assert counted(count, *words) == text
