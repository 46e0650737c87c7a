"""A short run of the fuzz of the admin page in every test run."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.admin import fuzz

COUNT = 20_000 if os.environ.get("NSQ_FUZZ") == "full" else 300


@pytest.mark.timeout(1800)
def test_no_request_is_an_internal_error(leak_guard):
    """Mutated methods, paths, queries, headers and bodies: anything but 500."""
    seen = fuzz(COUNT, seed=1)
    assert seen["200"] > COUNT / 15 and seen["400"] > COUNT / 50
