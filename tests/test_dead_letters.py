"""What happens to a message that is given up: logged, kept in a directory, or published."""

import json
import logging
import os
import re
import socket

import pytest

from nsqclient.dead_letters import (
    DeadLetter, DeadLetterDirectory, DeadLetterTopic, log_giving_up,
)
from nsqclient.errors import (
    ConfigError, InvalidMessageError, InvalidTopicError, PublishRejectedError,
)
from nsqclient.message import Failure, Message
from tests.support.processes import start_threads


class From:
    def __init__(self, address, topic, channel):
        self.address, self.topic, self.channel = address, topic, channel


def letter(
    body=b"poison", message_id=b"0123456789abcdef", address="nsqd:4150", raised=None,
    topic="events", channel="mail", timestamp=1_700_000_000_000_000_000,
):
    origin = From(address, topic, channel)
    message = Message(body, message_id, 6, timestamp, 0.0, 60.0, origin)
    if raised is not None:
        message._failure = Failure("too bad", raised)
    return message


def raised_error():
    try:
        json.loads("no JSON")
    except ValueError as error:
        return error


class FakeProducer:
    """A producer that records publishes, or refuses all or the long ones."""

    def __init__(self, failure=None, limit=None):
        self.published = []
        self._failure, self._limit = failure, limit

    def publish(self, topic, body):
        if self._failure is not None and (self._limit is None or len(body) > self._limit):
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
    log_giving_up(letter(raised=ValueError("x")))
    assert "after 6 attempts (too bad)" in caplog.text


def test_a_directory_keeps_a_message_and_what_is_known_about_it(tmp_path):
    DeadLetterDirectory(tmp_path / "a" / "b")(letter())
    [file] = (tmp_path / "a" / "b").iterdir()
    assert re.fullmatch(r"events\+mail\+0123456789abcdef\+[0-9a-f]{16}\.json", file.name)
    facts = json.loads(file.read_text())
    assert facts.pop("given_up_at").endswith("Z")
    assert facts == {
        "dead_letter": 1, "topic": "events", "channel": "mail", "id": "0123456789abcdef",
        "attempts": 6, "timestamp": 1_700_000_000_000_000_000,
        "published_at": "2023-11-14T22:13:20.000000Z",
        "reason": "", "exception": "", "traceback": "", "nsqd_address": "nsqd:4150",
        "host": socket.gethostname(), "size": 6, "body": "poison", "body_encoding": "utf-8",
    }


def test_a_message_that_is_kept_twice_has_one_entry_and_may_be_deleted_twice(tmp_path):
    keep = DeadLetterDirectory(tmp_path)
    keep(letter())
    keep(letter())
    assert len(list(tmp_path.iterdir())) == 1
    [name] = keep.names()
    keep.delete(name)
    keep.delete(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", [
    {"topic": "orders"}, {"channel": "billing"}, {"address": "[::1]:4150"}, {"body": b"other"},
    {"timestamp": 5}, {"topic": "events+mail", "channel": ""},
])
def test_two_messages_with_one_id_have_two_entries(tmp_path, other):
    """nsqd's ids are unique within a topic, and the same in each of its channels."""
    keep = DeadLetterDirectory(tmp_path)
    keep(letter())
    keep(letter(**other))
    assert len(keep.names()) == len(list(tmp_path.iterdir())) == 2
    assert {keep.read(name).body for name in keep.names()} == {b"poison", other.get(
        "body", b"poison")}


@pytest.mark.parametrize("message_id", [b"/../../../../etc", b"\x00\n \xff0123456789ab", b"." * 16])
def test_odd_ids_stay_in_the_directory(tmp_path, message_id):
    """Some servers use any 16 bytes as an id; a file name is made of hex digits then."""
    folder = tmp_path / "dead"
    DeadLetterDirectory(folder)(letter(message_id=message_id))
    [file] = folder.iterdir()
    assert file.name.split("+")[:3] == ["events", "mail", message_id.hex()]
    assert list(tmp_path.iterdir()) == [folder]
    assert json.loads(file.read_text())["id"] == message_id.hex()


def test_a_disk_that_does_not_take_it_raises(tmp_path, monkeypatch):
    """So that the message is requeued; no half of it looks complete."""
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    keep = DeadLetterDirectory(tmp_path)
    monkeypatch.setattr("nsqclient.dead_letters.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        keep(letter())
    assert list(tmp_path.iterdir()) == []


def test_the_directory_itself_reaches_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("nsqclient.dead_letters.os.fsync", synced.append)
    DeadLetterDirectory(tmp_path)(letter())
    assert len(synced) == 2


def test_many_threads_may_keep_the_same_message(tmp_path):
    """A message whose time ran out may be given up twice at once; its copy stays whole."""
    keep = DeadLetterDirectory(tmp_path)
    kept = []
    for thread in start_threads(8, lambda: kept.append(keep(letter(b"x" * 100_000)))):
        thread.join()
    assert len(kept) == 8
    assert keep.read(*keep.names()).body == b"x" * 100_000
    assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_gives_its_letters_back(tmp_path):
    keep = DeadLetterDirectory(tmp_path)
    for number in range(3):
        keep(letter(b"%d" % number, b"%016d" % number, raised=raised_error()))
        path, = tmp_path.glob(f"*{number:016d}*")
        os.utime(path, (100 - number, 100 - number))
    names = keep.names()
    assert [keep.read(name).body for name in names] == [b"2", b"1", b"0"]
    first = keep.read(names[0])
    assert (first.topic, first.reason, first.host) == ("events", "too bad", socket.gethostname())
    assert "raised_error" in first.traceback and "Expecting value" in first.exception


def test_a_damaged_letter_is_said_to_be_and_can_be_set_aside(tmp_path):
    damaged, keep = b'{"id": ', DeadLetterDirectory(tmp_path)
    (tmp_path / "x.json").write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        keep.read("x")
    assert keep.set_aside("x").read_bytes() == damaged
    assert keep.names() == []


def test_a_topic_gets_an_envelope(caplog):
    producer = FakeProducer()
    DeadLetterTopic(producer, "events.dead")(letter(raised=raised_error()))
    [(topic, body)] = producer.published
    values = json.loads(body)
    assert (topic, values["body"], values["body_encoding"]) == ("events.dead", "poison", "utf-8")
    assert (values["dead_letter"], values["topic"], values["reason"]) == (1, "events", "too bad")
    assert "events.dead" in caplog.text and "too bad" in caplog.text


def test_a_topic_may_get_what_a_function_makes():
    producer = FakeProducer()
    DeadLetterTopic(
        producer, "dead", lambda message: b"%d %b" % (message.attempts, message.body))(letter())
    assert producer.published == [("dead", b"6 poison")]


@pytest.mark.parametrize("refusal", [
    InvalidMessageError("too big"), PublishRejectedError("too big", "E_BAD_MESSAGE"),
])
def test_an_envelope_that_is_too_large_leaves_the_body_bare(refusal, caplog):
    """Whether the producer or nsqd refuses it; a WARNING has the facts."""
    producer = FakeProducer(refusal, limit=6)
    DeadLetterTopic(producer, "dead")(letter(raised=raised_error()))
    assert producer.published == [("dead", b"poison")]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    facts = json.loads(warning.getMessage().partition("its other fields: ")[2])
    assert (facts["channel"], facts["attempts"], facts["reason"]) == ("mail", 6, "too bad")
    assert "too large for nsqd" in warning.getMessage()


def test_a_publish_that_fails_raises():
    """So that the message is requeued instead of finished."""
    refusal = PublishRejectedError("too big")
    with pytest.raises(PublishRejectedError):
        DeadLetterTopic(FakeProducer(refusal), "dead")(letter())


@pytest.mark.parametrize("body", [
    b"", b"plain", "gr\u00fc\u00dfe \u2028 \U0001f600".encode(), b"\x00\x1f\"\\", b"\xff\x00",
    b'{"a": 1}',
    b"\xed\xa0\x80", b'{"dead_letter": 1}',
])
def test_an_envelope_gives_the_letter_back(body):
    written = DeadLetter.of(letter(body, raised=raised_error()), 1_700_000_001.5, "host\n1")
    assert DeadLetter.parse(written.to_envelope()) == written
    twice = DeadLetter.of(letter(written.to_envelope()), 1_700_000_002.0, "host")
    assert DeadLetter.parse(twice.to_envelope()).body == written.to_envelope()


@pytest.mark.parametrize("body", [
    b"", b"poison", b'{"a": 1}', b'"dead_letter"', b'{"dead_letter": 2, "body": "x"}',
    b'{"dead_letter": 1}', b'{"dead_letter": 1, "body": 5, "body_encoding": "utf-8"}',
    b'{"dead_letter": 1, "body": "%", "body_encoding": "base64"}',
    b'{"dead_letter": 1, "body": "\\ud800", "body_encoding": "utf-8"}',
    b'["dead_letter"' + b"[" * 100_000, b'\xff"dead_letter"',
])
def test_what_is_no_envelope_is_a_bare_body(body):
    assert DeadLetter.parse(body) == DeadLetter(body)


def test_odd_facts_are_empty():
    found = DeadLetter.parse(
        b'{"dead_letter": 1, "topic": "a b", "attempts": true, "id": 5, "traceback": [],'
        b' "reason": "a\\u001b[1m", "body": "x", "body_encoding": "utf-8"}')
    assert found == DeadLetter(b"x", reason=r"a\x1b[1m")


def test_the_end_of_a_long_traceback_is_kept():
    def fall(depth):
        if depth:
            eval("fall(depth - 1)", {"fall": fall, "depth": depth})
        raise ValueError("deep\x1b[1m")

    try:
        fall(90)
    except ValueError as error:
        found = DeadLetter.of(letter(raised=error), 0.0, "h")
    lines = found.traceback.split("\n")
    assert 3000 < len(found.traceback) < 4100
    assert (lines[0], lines[-2]) == ("...", r"ValueError: deep\x1b[1m")
    assert found.exception == r"ValueError: deep\x1b[1m"
    assert DeadLetter.parse(found.to_envelope()) == found


@pytest.mark.parametrize("text", ["x" * 10_000, "long\n" * 2_000])
def test_a_long_text_of_an_exception_leaves_the_frames(text):
    def handle():
        raise ValueError("the cause: " + text)

    with pytest.raises(ValueError) as caught:
        handle()
    found = DeadLetter.of(letter(raised=caught.value), 0.0, "h").traceback
    assert "in handle" in found
    assert "ValueError: the cause: " + text[:900] in found
    assert len(found) <= 4100


def test_an_exception_whose_text_cannot_be_had_has_its_type():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    assert "Odd" in DeadLetter.of(letter(raised=Odd()), 0.0, "h").exception


async def make_body(message):
    """Does nothing unless awaited."""


@pytest.mark.parametrize("arguments, error, words", [
    (["127.0.0.1:4150", "orders-dead"], ConfigError, r"write DeadLetterTopic\(producer, topic\)"),
    ([FakeProducer(), "no topic"], InvalidTopicError, "no topic"),
    ([FakeProducer(), "dead", make_body], ConfigError, "^body: .*not async def"),
])
def test_bad_arguments_are_refused_at_once(arguments, error, words):
    with pytest.raises(error, match=words):
        DeadLetterTopic(*arguments)
