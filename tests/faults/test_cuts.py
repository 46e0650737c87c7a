"""The connection is cut at byte N, for every N of a whole dialogue."""

import random
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
@pytest.mark.parametrize("server_kind", [
    "embedded", pytest.param("real", marks=[pytest.mark.real, pytest.mark.long])])
def test_a_cut_anywhere_loses_nothing(
    server_factory, server_kind, tmp_path, name, tls, direction, reset
):
    options, config = {"msg_timeout": 1.0 if server_kind == "real" else 0.3}, QUICK
    if tls:
        certificates = Certificates(tmp_path)
        options |= {"tls_cert": certificates.server, "tls_key": certificates.server_key}
        config = config.replace(tls_v1=True, tls_root_ca_file=certificates.ca)
    server = server_factory(**options)
    make_channel(server, "whole")
    length = DIALOGUES[name](server, "whole", config, faithful)[direction]
    seed = zlib.crc32(f"{name} {tls} {direction} {reset}".encode())
    places = positions(length, seed, _CHOICE)
    if server_kind == "real":
        places = random.Random(seed).sample(places, min(len(places), 10 * _CHOICE))
    faults = cuts(places, direction, reset)
    assert try_all(server, DIALOGUES[name], config, faults, "t") >= min(length, _CHOICE)
