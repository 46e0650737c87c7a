"""Ports for servers that a test restarts on the same address."""

import os
import random
import socket
from collections import deque

# Below Linux's and macOS's ranges of ports for outgoing connections. A server that is down for a
# while must not lose its port to somebody's outgoing connection, and a client that dials a dead
# port in that range may even connect to itself.
_FIRST, _LAST = 20000, 29999

# Processes of pytest-xdist have ranges of their own: a port on which a test expects nobody is not
# taken by a server of another one. Without xdist the last range is used.
_RANGES = 8
_SIZE = (_LAST + 1 - _FIRST) // _RANGES

# pytest-randomly seeds the global source, which would give every test run the same ports.
_random = random.Random(os.urandom(8))
#: Ports that were returned last: a test may still expect that nobody listens there.
_recent: deque[int] = deque(maxlen=_SIZE // 2)


def _ports(worker: str) -> range:
    """Return the ports for a process, by its name in pytest-xdist (``gw0``); empty: it has none."""
    number = int(worker.removeprefix("gw")) % (_RANGES - 1) if worker else _RANGES - 1
    return range(_FIRST + number * _SIZE, _FIRST + (number + 1) * _SIZE)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now.

    Another process may take it before the caller does: start again with another one then.
    """
    ports = _ports(os.environ.get("PYTEST_XDIST_WORKER", ""))
    for _ in range(1000):
        port = _random.choice(ports)
        if port in _recent:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _recent.append(port)
            return port
    raise RuntimeError(f"no free port of 127.0.0.1 between {ports[0]} and {ports[-1]}")
