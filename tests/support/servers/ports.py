"""Ports for servers that a test restarts on the same address."""

import fcntl
import os
import random
import socket
import tempfile
from collections import deque

# Below Linux's and macOS's ranges of ports for outgoing connections. A server that is down for a
# while must not lose its port to somebody's outgoing connection, and a client that dials a dead
# port in that range may even connect to itself.
_FIRST, _LAST = 20000, 29999

# Each process has a range of its own, as long as it lives: a port on which a test expects nobody is
# not taken by a server of another one, also of another run of the tests.
_SIZE = 200

# pytest-randomly seeds the global source, which would give every test run the same ports.
_random = random.Random(os.urandom(8))
#: Ports that were returned last: a test may still expect that nobody listens there.
_recent: deque[int] = deque(maxlen=_SIZE // 2)


def _take_ports() -> range:
    """Return the ports of this process: a lock on a file says that they are taken."""
    for first in _random.sample(range(_FIRST, _LAST, _SIZE), (_LAST + 1 - _FIRST) // _SIZE):
        path = f"{tempfile.gettempdir()}/nsqclient-tests-{os.getuid()}-ports-{first}"
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
        else:
            return range(first, first + _SIZE)
    raise RuntimeError("too many tests run at once")


#: Taken at the import, as a test that opens a file and does not close it fails.
_PORTS = _take_ports()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now.

    Another process may take it before the caller does: start again with another one then.
    """
    for _ in range(1000):
        port = _random.choice(_PORTS)
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
    raise RuntimeError(f"no free port of 127.0.0.1 between {_PORTS[0]} and {_PORTS[-1]}")
