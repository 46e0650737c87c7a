"""Settings of the admin page are checked at once; addresses of nsqds can be mapped."""

import pytest

from nsqclient import ConfigError
from nsqclient.admin import AdminSettings
from nsqclient.admin.settings import AddressMap

LOOKUPD = {"lookupd_http_addresses": ("127.0.0.1:4161",)}


@pytest.mark.parametrize("given, path", [
    ("", ""), ("/", ""), ("/nsq", "/nsq"), ("nsq/", "/nsq"), ("/a/b/", "/a/b"),
])
def test_a_base_path_begins_with_a_slash_and_ends_without(given, path):
    assert AdminSettings(**LOOKUPD, base_path=given).base_path == path


@pytest.mark.parametrize("options, words", [
    ({}, "required"),
    ({**LOOKUPD, "nsqd_http_addresses": ("127.0.0.1:4151",)}, "not both"),
    ({"lookupd_http_addresses": ("nonsense",)}, "lookupd_http_address"),
    ({**LOOKUPD, "allow_actions": True, "admin_users": ("ada",)}, "--admin-user"),
    ({**LOOKUPD, "base_path": "/a b"}, "base_path"),
    ({**LOOKUPD, "base_path": "/../x"}, "base_path"),
    ({**LOOKUPD, "notification_http_endpoint": "ftp://x/"}, "notification_http_endpoint"),
    ({**LOOKUPD, "allow_config_from_cidr": "here"}, "allow_config_from_cidr"),
    *(({**LOOKUPD, "allowed_hosts": (host,)}, "--allowed-host .* nsq.example.com") for host in (
        "", "*.example.com", "nsq.example.com:4171", "[::1]", "http://nsq.example.com",
        "n\u00f6.example", "a,b")),
    ({**LOOKUPD, "refresh_interval": 0.0}, "refresh_interval"),
    ({**LOOKUPD, "rewrite_addresses": (("a", ""),)}, "FROM=TO"),
])
def test_an_invalid_setting_is_rejected(options, words):
    with pytest.raises(ConfigError, match=words):
        AdminSettings(**options)


@pytest.mark.parametrize("host, port, address", [
    ("172.17.0.2", 4151, "127.0.0.1:14151"),
    ("172.17.0.2", 4150, "172.17.0.2:4150"),
    ("nsqd-1", 4151, "localhost:4151"),
    ("NSQD-1", 4150, "localhost:4150"),
    ("fd00::1", 4151, "[::1]:9"),
    ("other", 4151, "other:4151"),
])
def test_an_announced_address_is_rewritten_by_port_or_host(host, port, address):
    rewrite = AddressMap([
        ("172.17.0.2:4151", "127.0.0.1:14151"), ("nsqd-1", "localhost"),
        ("[fd00::1]:4151", "[::1]:9"),
    ])
    assert rewrite(host, port) == address


@pytest.mark.parametrize("host", ["nsq.example.com", "my_host", "::1"])
def test_names_and_addresses_of_hosts_are_allowed(host):
    assert AdminSettings(**LOOKUPD, allowed_hosts=(host,)).allowed_hosts == (host,)
