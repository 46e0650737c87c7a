"""Ports for servers that a test restarts on the same address."""

from __future__ import annotations

import os
import random
import socket

# Below Linux's and macOS's ranges of ports for outgoing connections. A server that is down for a
# while must not lose its port to somebody's outgoing connection, and a client that dials a dead
# port in that range may even connect to itself.
_FIRST, _LAST = 20000, 29999

# pytest-randomly seeds the global source, which would give every test run the same ports.
_random = random.Random(os.urandom(8))


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now.

    Another process may take it before the caller does: start again with another one then.
    """
    for _ in range(1000):
        port = _random.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port of 127.0.0.1 between {_FIRST} and {_LAST}")
