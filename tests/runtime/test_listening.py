"""The addresses that a server listens on."""

import socket

import pytest

from nsqclient.errors import ConfigError
from nsqclient.runtime.addresses import parse_listen_address
from nsqclient.runtime.transport import listen


def reached(listener: socket.socket) -> list[str]:
    """The hosts by which a listener is reached."""
    found = []
    for host in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((host, listener.getsockname()[1]), 5).close()
        except OSError:
            continue
        found.append(host)
    return found


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


NEEDS_IPV6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


@NEEDS_IPV6
@pytest.mark.parametrize("host", ["", "::"])
def test_an_empty_host_is_ipv4_and_ipv6_as_in_go(host):
    with listen(host, 0) as listener:
        assert reached(listener) == ["127.0.0.1", "::1"]


@pytest.mark.parametrize(("host", "hosts"), [
    ("127.0.0.1", ["127.0.0.1"]), ("0.0.0.0", ["127.0.0.1"]),
    pytest.param("::1", ["::1"], marks=NEEDS_IPV6),
])
def test_an_address_is_that_address_alone(host, hosts):
    with listen(host, 0) as listener:
        assert reached(listener) == hosts


def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch):
    create_server = socket.create_server

    def create(address, *, family=socket.AF_INET, **options):
        if family == socket.AF_INET6:
            raise OSError(99, "Cannot assign requested address")
        return create_server(address, family=family, **options)

    monkeypatch.setattr(socket, "create_server", create)
    with listen("", 0) as listener:
        assert reached(listener) == ["127.0.0.1"]


def test_a_port_that_is_in_use_is_an_error():
    with listen("", 0) as listener, pytest.raises(OSError, match="in use"):
        listen("", listener.getsockname()[1])


@pytest.mark.parametrize(("text", "address"), [
    (":80", ("", 80)), ("[::]:80", ("::", 80)), ("[::1]:0", ("::1", 0)),
    ("localhost:80", ("localhost", 80)), ("0.0.0.0:80", ("0.0.0.0", 80)),
])
def test_a_listen_address_is_split(text, address):
    assert parse_listen_address(text) == address


@pytest.mark.parametrize("text", [
    "h", "h:", "h:x", "h:65536", "h:-1", "h:" + "9" * 5000, "::1:80", "[h]:80", "[]:80", "*:80",
    "http://h:80", "", "8080",
])
def test_an_invalid_listen_address_is_refused(text):
    with pytest.raises(ConfigError, match="is not an address: give <addr>:<port>"):
        parse_listen_address(text)
