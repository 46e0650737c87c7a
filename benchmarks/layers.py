"""CPU time that TLS and compression cost for each message: ``python benchmarks/layers.py``.

Both cores in one process, no socket, no thread: the figures are processor time of the client's
side alone, and hold on a busy machine too. TLS needs ``openssl`` for a certificate.
"""

from __future__ import annotations

import argparse
import json
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from nsqd import bodies_of

from nsqclient.protocol import commands
from nsqclient.protocol.client import ClientProtocol
from nsqclient.protocol.frames import OK, FrameType, encode_frame, encode_message
from nsqclient.protocol.layers.deflate import DeflateLayer
from nsqclient.protocol.layers.snappy import SnappyLayer
from nsqclient.protocol.layers.stack import ByteLayer, LayerStack
from nsqclient.protocol.layers.tls import TLSLayer

#: What nsqd hands to a layer at once: its output buffer's default size.
SERVER_WRITE = 16 * 1024
#: What a client reads at once when there is much to read.
CLIENT_READ = 256 * 1024
MESSAGES = 50_000
ID = b"0123456789abcdef"

Ends = list[tuple[ByteLayer, ByteLayer]]


def certificate(folder: str) -> tuple[str, str]:
    """Make a certificate for 127.0.0.1 that is its own authority."""
    openssl = shutil.which("openssl")
    if openssl is None:
        sys.exit("TLS needs a certificate: install openssl, or leave TLS out with --only")
    cert, key = str(Path(folder) / "cert.pem"), str(Path(folder) / "key.pem")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )
    return cert, key


def tls_ends(folder: str) -> tuple[ByteLayer, ByteLayer]:
    """Make both ends of a TLS connection and let them shake hands."""
    cert, key = certificate(folder)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(cert, key)
    client = TLSLayer(ssl.create_default_context(cafile=cert), server_name="127.0.0.1")
    server = TLSLayer(server_context, server_side=True)
    while client.has_output() or server.has_output():
        list(server.decode(client.wire_output()))
        list(client.decode(server.wire_output()))
    return client, server


def make_ends(name: str, folder: str) -> Ends:
    """Make the layers of a combination such as ``tls+snappy``, for client and server."""
    makers: dict[str, Callable[[], tuple[ByteLayer, ByteLayer]]] = {
        "tls": lambda: tls_ends(folder),
        "snappy": lambda: (SnappyLayer(), SnappyLayer()),
        "deflate": lambda: (DeflateLayer(6), DeflateLayer(6)),
    }
    return [makers[part]() for part in name.split("+") if part != "plain"]


def subscribed(ends: Ends) -> tuple[ClientProtocol, LayerStack]:
    """Bring a client core to the point where messages flow, through these layers."""
    core, server = ClientProtocol(), LayerStack()
    core.send_identify({})
    core.data_to_send()
    granted = {"tls_v1": len(ends) == 2, "snappy": len(ends) > 0}
    core.receive_data(encode_frame(FrameType.RESPONSE, json.dumps(granted).encode()))
    for ours, theirs in ends:
        core.push_layer(ours)
        list(server.push(theirs))
        core.receive_data(server.encode(encode_frame(FrameType.RESPONSE, OK)))
    core.send_sub("topic", "channel")
    core.receive_data(server.encode(encode_frame(FrameType.RESPONSE, OK)))
    list(server.decode(core.data_to_send()))
    core.take_events()
    return core, server


def measure(name: str, bodies: list[bytes], folder: str) -> tuple[float, float, float, float]:
    """Return microseconds for a message received, for its FIN, for a publish; bytes on the wire."""
    core, server = subscribed(make_ends(name, folder))
    plain = b"".join(
        encode_message(1, 1, ID, bodies[n % len(bodies)]) for n in range(MESSAGES)
    )
    wire = b"".join(
        server.encode(plain[at:at + SERVER_WRITE]) for at in range(0, len(plain), SERVER_WRITE)
    )
    started = time.process_time()
    received = 0
    for at in range(0, len(wire), CLIENT_READ):
        core.receive_data(wire[at:at + CLIENT_READ])
        received += sum(len(event.batch) for event in core.take_events())
    receiving = time.process_time() - started
    assert received == MESSAGES
    started = time.process_time()
    for _ in range(MESSAGES // 100):
        core.send_fin([ID] * 100)
        core.data_to_send()
    finishing = time.process_time() - started
    command = commands.pub("topic", bodies[0])
    started = time.process_time()
    for _ in range(MESSAGES):
        core.send_publish(command, None)
        core.data_to_send()
    publishing = time.process_time() - started
    each = 1e6 / MESSAGES
    return receiving * each, finishing * each, publishing * each, len(wire) / MESSAGES


def main(argv: list[str] | None = None) -> int:
    """Print one line for each combination."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=200, help="bytes of a message (200)")
    parser.add_argument("--body", choices=("x", "json"), default="json",
                        help="the letter x, or JSON that differs (json)")
    parser.add_argument("--rounds", type=int, default=5, help="the best of them counts (5)")
    parser.add_argument("--only", default="plain,tls,snappy,deflate,tls+snappy,tls+deflate",
                        help="combinations, separated by commas")
    arguments = parser.parse_args(argv)
    bodies = bodies_of(arguments.body, arguments.size)
    print(f"{MESSAGES:,} messages of {arguments.size} bytes ({arguments.body});"
          " microseconds of processor time")
    print(f"{'layers':<12} {'receive':>9} {'FIN of 100':>11} {'one PUB':>9} {'bytes each':>11}")
    with tempfile.TemporaryDirectory(prefix="nsqclient-bench-") as folder:
        for name in arguments.only.split(","):
            runs = [measure(name, bodies, folder) for _ in range(arguments.rounds)]
            best = [min(values) for values in zip(*runs)]
            print(f"{name:<12} {best[0]:>9.2f} {best[1]:>11.2f} {best[2]:>9.2f} {best[3]:>11.0f}",
                  flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
