"""The parts of the chaos runs: the same seed gives the same run, and lost messages are found."""


from nsqclient.protocol import commands
from nsqclient.protocol.frames import encode_frame, encode_message
from tests.chaos.ledger import Ledger
from tests.chaos.record import Record, Sighting
from tests.chaos.result import Losses, RunResult
from tests.chaos.watch import PATIENCE, StuckMeter

OK = encode_frame(0, b"OK")


def test_lost_and_unwanted_messages_fail_a_run(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.attempted |= {"unsettled", "rejected"}
    ledger.rejected.add("rejected")
    ledger.stored |= {"handled", "lost"}
    ledger.handled.update(["handled", "handled", "unsettled"])
    result = RunResult(1)
    result.take(ledger)
    assert (result.failures, result.duplicates) == (["lost: lost"], 1)
    ledger.handled.update(["lost", "rejected", "never published"])
    result.take(ledger)
    assert result.failures == ["unwanted: never published", "unwanted: rejected"]


def test_the_record_reads_what_proxies_forward():
    record = Record()
    up = b"  V2" + commands.identify({}) + commands.pub("t", b"p1 x") + commands.mpub(
        "t", [b"p2 x", b"p3 x"])
    for at in range(len(up)):
        record.take(0, 1, "client", up[at:at + 1])
    down = OK + encode_frame(0, b"_heartbeat_") + OK + OK
    for at in range(len(down)):
        record.take(0, 1, "server", down[at:at + 1])
    assert set(record.stored) == {"p1", "p2", "p3"}
    record.take(1, 1, "server", encode_message(1, 1, b"0123456789abcdef", b"p2 x"))
    record.take(1, 1, "client", b"  V2FIN 0123456789abcdef\n")
    assert set(record.delivered) == record.finished == {"p2"}


def sorted_losses(stored, delivered=(), finished=(), stops=()):
    losses = Losses(stored, dict(delivered), set(finished), stops)
    return [len(kind) for kind in losses.sort(stored)]


def test_a_message_that_vanished_is_ours_unless_its_nsqd_ended():
    """And unless that nsqd still had it after its stop, or got a FIN for it."""
    ok, stop = {"a": [Sighting(0, 10.0)]}, [(0, 11.0, False)]
    assert sorted_losses(ok) == [1, 0, 0]
    assert sorted_losses(ok, stops=[(1, 11.0, False)]) == [1, 0, 0]
    assert sorted_losses(ok, stops=[(0, 5.0, False)]) == [1, 0, 0]
    assert sorted_losses(ok, stops=[(0, 11.0, True)]) == [0, 0, 1]
    assert sorted_losses(ok, stops=stop) == [0, 1, 0]
    assert sorted_losses(ok, {"a": [Sighting(0, 10.5)]}, stops=stop) == [0, 1, 0]
    assert sorted_losses(ok, {"a": [Sighting(0, 12.0)]}, stops=stop) == [1, 0, 0]
    assert sorted_losses(ok, {"a": [Sighting(0, 10.5)]}, {"a"}, stop) == [1, 0, 0]


def test_a_consumer_that_is_idle_with_work_is_stuck():
    def found(**changes):
        meter = StuckMeter()
        for tick in range(int(2 * PATIENCE) + 3):
            now = 100 + tick / 2
            state = {"at": now, "last": 100.0, "paused": False, "backoff": False, **changes}
            work = [0] if "last" not in changes else [0, 1]
            meter.observe(now, "c0", state, work)
        return len(meter.stuck)

    assert found() == 1
    assert found(paused=True) == found(backoff=True) == found(at=0.0) == 0
    meter = StuckMeter()
    for now in range(100, 200):
        meter.observe(now, "c0", {"at": now, "last": now - 10.0, "paused": 0, "backoff": 0}, [0])
        meter.observe(now, "c1", {"at": now, "last": 0.0, "paused": 0, "backoff": 0}, [])
        meter.observe(now, "c2", None, [0])
    assert meter.stuck == []
