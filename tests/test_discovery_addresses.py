"""The lists of addresses that consumers and producers are given."""

from __future__ import annotations

import pytest

from nsqclient.discovery import check_addresses
from nsqclient.errors import ConfigError

NSQD, LOOKUPD = "nsqd:4150", "lookupd:4161"


@pytest.mark.parametrize("nsqds, lookupds, checked", [
    ([NSQD], [], ([NSQD], [])),
    ([], [LOOKUPD], ([], [LOOKUPD])),
    ((NSQD,), {LOOKUPD}, ([NSQD], [LOOKUPD])),
    (iter([NSQD]), iter([LOOKUPD]), ([NSQD], [LOOKUPD])),
    (["b:1", "a:1", "b:1"], ["c:1", "http://c:1", "c:1"], (["b:1", "a:1"], ["c:1", "http://c:1"])),
    (["[::1]:4150"], ["http://[::1]:4161", "https://lookupd"],
     (["[::1]:4150"], ["http://[::1]:4161", "https://lookupd"])),
])
def test_a_list_of_addresses_keeps_its_order_without_duplicates(nsqds, lookupds, checked):
    assert check_addresses(nsqds, lookupds) == checked


@pytest.mark.parametrize("nsqds, lookupds, why", [
    ([], [], "give nsqd_tcp_addresses or lookupd_http_addresses"),
    (NSQD, [], r"nsqd_tcp_addresses must be a list of addresses: write \['nsqd:4150'\]"),
    ([], LOOKUPD, "lookupd_http_addresses must be a list"),
    (b"nsqd:4150", [], "nsqd_tcp_addresses must be a list"),
    ([NSQD], None, "lookupd_http_addresses must be a list"),
    (["nsqd"], [], "nsqd_tcp_address 'nsqd' has no port.*as in 'nsqd:4150'"),
    ([NSQD, "http://nsqd:4151"], [], "is a URL"),
    ([["nsqd", 4150]], [], "must be a string"),
    ([], ["lookupd"], "lookupd_http_address 'lookupd' has no port.*as in 'nsqlookupd:4161'"),
    ([], ["ftp://lookupd:4161"], "lookupd_http_address"),
    ("a:4150,b:4150", [], r"nsqd_tcp_addresses must be a list.*write \['a:4150', 'b:4150'\]"),
    (["a:4150,b:4150"], [], r"is a list with commas: give each.*\['a:4150', 'b:4150'\]"),
    ([], ["a:4161, b:4161"], r"is a list with commas: give each.*\['a:4161', 'b:4161'\]"),
    (["a:4150,u:p@b:4150"], [], r"\['a:\*\*\*@b:4150'\]"),
    ([], ["http://u:p,w@b:4161"], r"\['http://u:\*\*\*@b:4161'\]"),
    ([], ["http://u:12/w@b:4161"], r"'http://u:\*\*\*@b:4161'.*write / \? # @ and blanks as %XX"),
    ([], ["http://u:12?w@b:4161"], r"'http://u:\*\*\*@b:4161'.*as %XX"),
    ([], ["http://u:p\tw@b:4161"], r"'http://u:\*\*\*@b:4161'.*as %XX"),
])
def test_an_invalid_list_of_addresses_is_refused(nsqds, lookupds, why):
    with pytest.raises(ConfigError, match=why):
        check_addresses(nsqds, lookupds)
