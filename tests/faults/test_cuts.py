"""The connection is cut at byte N, for every N of a whole dialogue, on the embedded server."""

from __future__ import annotations

import zlib

import pytest

from tests.faults.dialogues import (
    DIALOGUES, FULL, QUICK, faithful, make_channel, positions, try_all,
)
from tests.support.certificates import Certificates
from tests.support.faults.proxy import CLIENT, SERVER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 120)]

#: How many positions of a dialogue the quick form tries.
_CHOICE = 6


def cuts(places, direction, reset):
    return [
        (f"{place:05d}", lambda proxy, place=place: proxy.cut_after(place, direction, reset=reset))
        for place in places
    ]


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("direction", [CLIENT, SERVER])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("name", DIALOGUES)
def test_a_cut_anywhere_loses_nothing(embedded, tmp_path, name, tls, direction, reset):
    options, config = {"msg_timeout": 0.3}, QUICK
    if tls:
        certificates = Certificates(tmp_path)
        options |= {"tls_cert": certificates.server, "tls_key": certificates.server_key}
        config = config.replace(tls_v1=True, tls_root_ca_file=certificates.ca)
    server = embedded(**options)
    make_channel(server, "whole")
    length = DIALOGUES[name](server, "whole", config, faithful)[direction]
    seed = zlib.crc32(f"{name} {tls} {direction} {reset}".encode())
    faults = cuts(positions(length, seed, _CHOICE), direction, reset)
    assert try_all(server, DIALOGUES[name], config, faults, "t") >= min(length, _CHOICE)
