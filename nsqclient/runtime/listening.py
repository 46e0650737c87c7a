"""Listening sockets, with the meaning that an address has in Go."""

from __future__ import annotations

import errno
import socket

#: Listens to every network, as ``":8080"`` does.
_ALL = ("", "::")
#: IPv6 is turned off on this machine.
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def listen(host: str, port: int, backlog: int = 1024) -> socket.socket:
    """Return a socket that listens for TCP connections.

    Args:
        host: a name or an address. Empty or ``::``: all of IPv4 and IPv6, or of IPv4 if the machine
            has no IPv6.
        port: 0 for any free one.

    Raises:
        OSError: the address is in use, not allowed, or not one of this machine.
    """
    if host in _ALL and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as exc:
            if exc.errno not in _NO_IPV6:
                raise
    if host in _ALL:
        return socket.create_server(("", port), backlog=backlog)
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address[:2], family=family, backlog=backlog)
