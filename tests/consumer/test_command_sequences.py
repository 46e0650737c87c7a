"""The exact commands of a consumer against a scripted nsqd, in two sequences of go-nsq's own.

Each step waits for the command before it, so nothing depends on how fast the machine is. Attempts
are 0, as in go-nsq's tests: the delay of a requeue is 90 s for each attempt, here 0.
"""

from nsqclient import Config, Consumer
from tests.support.servers.scripted import Peer, ScriptedServer, message

SUB = b"SUB events mail"
QUICK = Config(
    backoff_multiplier=0.05, output_buffer_timeout=0.025, rdy_share_of_timeout=0, max_in_flight=5)


def handle(message):
    if message.body == b"bad":
        raise ValueError("bad")
    if message.body == b"requeue":
        message.requeue()


def script(*steps):
    """A connection: each step is a body to send, or a command that must come next, as it is."""

    def run(peer: Peer) -> None:
        assert peer.subscribe() == SUB
        number = 0
        for step in steps:
            if step[:4] in (b"RDY ", b"FIN ", b"REQ "):
                expected = step % (b"%016x" % number) if b"%" in step else step
                assert peer.line() == expected
            else:
                number += 1
                peer.send(message(step, number, attempts=0))

    return run


def consume(*scripts) -> None:
    """Run a consumer against the connections; the server checks what it sends."""
    with ScriptedServer(*scripts) as server, Consumer(
            "events", "mail", handle, nsqd_tcp_addresses=[server.address], config=QUICK):
        server.join()


FIN, REQ = b"FIN %s", b"REQ %s 0"
RDY_0, RDY_1, RDY_5 = b"RDY 0", b"RDY 1", b"RDY 5"


def test_failures_and_successes_move_rdy_as_in_go_nsq():
    consume(script(
        RDY_5, b"good", FIN, b"good", FIN, b"good", FIN,
        b"bad", RDY_0, REQ, RDY_1, b"bad", RDY_0, REQ,
        RDY_1, b"good", RDY_0, FIN, RDY_1, b"good", RDY_5, FIN,
    ))


def test_backoff_goes_on_over_a_new_connection():
    """A new connection begins with the RDY 1 of the test, as in go-nsq."""
    consume(
        script(
            RDY_5, b"good", FIN, b"requeue", RDY_0, REQ, RDY_1, b"requeue", RDY_0, REQ,
            RDY_1, b"good", RDY_0, FIN, RDY_1,
        ),
        script(RDY_1, b"good", RDY_5, FIN, b"good", FIN),
    )
