"""The connections to the nsqds of a partitioned cluster."""

from __future__ import annotations

import pytest

from nsqclient import Config
from nsqclient.connection import Connection
from nsqclient.errors import ConnectError
from nsqclient.publishing.partitioned.pool import Pool
from nsqclient.runtime.deadline import Deadline


def test_close_while_a_connection_is_being_dialed(monkeypatch):
    """It has nothing to write yet; the dial ends, and close() returns."""
    pool = Pool(Config())
    stuck = []

    def dial(conn, deadline):
        stuck.append(pool.close(Deadline(5)))
        assert conn.is_closed
        raise ConnectError(conn.address, "closed while it was being opened")

    monkeypatch.setattr(Connection, "open", dial)
    with pytest.raises(ConnectError, match="closed while"):
        pool.take("127.0.0.1:4150", Deadline(5))
    assert stuck == [[]]
