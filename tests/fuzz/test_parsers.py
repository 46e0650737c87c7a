"""A short run of the fuzz of parsers in every test run."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.parsers import TARGETS, fuzz, play

COUNT = 1_000_000 // len(TARGETS) if os.environ.get("NSQ_FUZZ") == "full" else 700


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TARGETS)
def test_mutated_input_is_taken_or_refused_with_a_documented_error(name):
    """It is taken, or refused with a documented error, in bounded time and memory."""
    fuzz(name, COUNT, seed=1)


@pytest.mark.parametrize("name", TARGETS)
def test_the_unchanged_seeds_are_taken(name):
    """A fuzz that starts from what is refused at once would find nothing."""
    assert [seed for seed in TARGETS[name].seeds if play(name, seed)]
