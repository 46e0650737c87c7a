"""Embedded servers for dialogues under faults."""

from __future__ import annotations

import pytest

from tests.support.servers.factories import ServerFactory


@pytest.fixture
def embedded(leak_guard, tmp_path):
    factory = ServerFactory("embedded", tmp_path)
    yield factory
    factory.close()
