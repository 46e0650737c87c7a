"""What happens to a message that is given up: logged, kept in a directory, or published."""

from __future__ import annotations

import json
import logging
import threading

import pytest

from nsqclient.deadletter import DeadLetterDirectory, DeadLetterTopic, log_giving_up
from nsqclient.errors import ConfigError, InvalidTopicError, PublishRejected
from nsqclient.message import Message


class From:
    """A Responder that is only an address."""

    def __init__(self, address="nsqd:4150"):
        self.address = address


def letter(body=b"poison", message_id=b"0123456789abcdef", address="nsqd:4150"):
    """A message on its sixth delivery."""
    return Message(body, message_id, 6, 1_700_000_000_000_000_000, 0.0, 60.0, From(address))


class FakeProducer:
    """Keeps what is published, or refuses it."""

    def __init__(self, failure=None):
        self.published = []
        self._failure = failure

    def publish(self, topic, body):
        if self._failure is not None:
            raise self._failure
        self.published.append((topic, body))


def test_the_log_says_what_is_dropped(caplog):
    """Id, attempts and size at ERROR; the body stays out of the log."""
    log_giving_up(letter())
    record, = caplog.records
    assert record.levelno == logging.ERROR
    for word in ("0123456789abcdef", "5 attempts", "6 bytes", "nsqd:4150"):
        assert word in record.getMessage()
    assert "poison" not in record.getMessage()


def test_a_directory_keeps_body_and_metadata(tmp_path):
    """The directory is made where it is missing; nothing else is left in it."""
    DeadLetterDirectory(tmp_path / "a" / "b")(letter())
    body, metadata = sorted((tmp_path / "a" / "b").iterdir())
    assert body.name == "nsqd_4150-0123456789abcdef.body"
    assert body.read_bytes() == b"poison"
    assert metadata.name == "nsqd_4150-0123456789abcdef.json"
    assert json.loads(metadata.read_text()) == {
        "id": "0123456789abcdef", "timestamp": 1_700_000_000_000_000_000, "attempts": 6,
        "nsqd_address": "nsqd:4150", "size": 6,
    }


def test_a_message_that_is_kept_twice_has_one_entry(tmp_path):
    """Given up again, it takes the place of its first copy."""
    keep = DeadLetterDirectory(tmp_path)
    keep(letter())
    keep(letter())
    assert len(list(tmp_path.iterdir())) == 2


def test_the_same_id_of_two_nsqds_has_two_entries(tmp_path):
    """Ids are unique on one nsqd only."""
    keep = DeadLetterDirectory(tmp_path)
    keep(letter(b"one"))
    keep(letter(b"two", address="[::1]:4150"))
    assert sorted(path.read_bytes() for path in tmp_path.glob("*.body")) == [b"one", b"two"]


@pytest.mark.parametrize("message_id", [b"/../../../../etc", b"\x00\n \xff0123456789ab", b"." * 16])
def test_odd_ids_stay_in_the_directory(tmp_path, message_id):
    """Some servers use any 16 bytes as an id; a file name is made of hex digits then."""
    folder = tmp_path / "dead"
    DeadLetterDirectory(folder)(letter(message_id=message_id))
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"nsqd_4150-{message_id.hex()}.{end}" for end in ("body", "json")]
    assert list(tmp_path.iterdir()) == [folder]
    metadata = json.loads((folder / names[1]).read_text())
    assert metadata["id"] == message_id.hex()


def test_a_disk_that_does_not_take_it_raises(tmp_path, monkeypatch):
    """So that the message is requeued; no half of it looks complete."""
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    keep = DeadLetterDirectory(tmp_path)
    monkeypatch.setattr("nsqclient.deadletter.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        keep(letter())
    assert list(tmp_path.iterdir()) == []


def test_the_directory_itself_reaches_the_disk(tmp_path, monkeypatch):
    """Not only the files: their names, too, must survive a crash."""
    synced = []
    monkeypatch.setattr("nsqclient.deadletter.os.fsync", synced.append)
    DeadLetterDirectory(tmp_path)(letter())
    assert len(synced) == 3


def test_many_threads_may_keep_the_same_message(tmp_path):
    """A message whose time ran out may be given up twice at once; its copy stays whole."""
    keep = DeadLetterDirectory(tmp_path)
    failures = []

    def run():
        try:
            keep(letter(b"x" * 100_000))
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    body, = tmp_path.glob("*.body")
    assert body.read_bytes() == b"x" * 100_000
    assert len(list(tmp_path.iterdir())) == 2


def test_a_topic_gets_the_body(caplog):
    """The body is published as it is, and the log says where to."""
    producer = FakeProducer()
    DeadLetterTopic(producer, "events.dead")(letter())
    assert producer.published == [("events.dead", b"poison")]
    assert "events.dead" in caplog.text


def test_a_topic_may_get_more_than_the_body():
    """The body to publish can be made from the whole message."""
    producer = FakeProducer()
    DeadLetterTopic(producer, "dead", body=lambda m: b"%d %b" % (m.attempts, m.body))(letter())
    assert producer.published == [("dead", b"6 poison")]


def test_a_publish_that_fails_raises():
    """So that the message is requeued instead of finished."""
    refusal = PublishRejected("too big")
    with pytest.raises(PublishRejected):
        DeadLetterTopic(FakeProducer(refusal), "dead")(letter())


def test_a_bad_topic_is_refused_at_once():
    """Not when the first message is given up."""
    with pytest.raises(InvalidTopicError):
        DeadLetterTopic(FakeProducer(), "no topic")


def test_a_body_that_is_made_asynchronously_is_refused_at_once():
    """Calling the function would make none."""
    async def make_body(message):
        """Runs only where it is awaited."""

    with pytest.raises(ConfigError, match="^body: .*not async def"):
        DeadLetterTopic(FakeProducer(), "dead", body=make_body)
