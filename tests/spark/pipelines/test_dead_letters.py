"""Rows that a function fails on: mapped, and kept in a topic or a folder. No JVM."""

import base64
import dataclasses
import json
import os
import pickle
from pathlib import Path

import pytest

from nsqclient.devserver import Nsqd
from nsqclient.errors import ConfigError, NSQError
from nsqclient.spark.options import write_options
from nsqclient.spark.pipelines.archiving import choose_dead_letters
from nsqclient.spark import dead_letter_folder
from nsqclient.spark.dead_letter_folder import FolderDeadLetters, letter_of
from nsqclient.spark.pipelines.transforms import BodyMapper
from nsqclient.spark.publishing import TopicDeadLetters
from nsqclient.spark.segment import Rows, encode_segment, read_rows

SOURCE = {"nsqd": "127.0.0.1:1", "topic": "t", "channel": "c"}


def rows(*bodies):
    return read_rows(encode_segment("t", "c", [("n:1", Rows.of([
        (number, 2, b"%016x" % number, body) for number, body in enumerate(bodies)]))]))


def open_folder(path):
    return FolderDeadLetters.prepare(path, letter_of)


def fail_on_b(body):
    if body.startswith(b"b"):
        raise ValueError(f"not {body.decode(errors='replace')}")
    return {b"none": None, b"two": [b"1", "2"]}.get(body, body.upper())


def batch_of_task():
    """The name of the batch, which Spark gives to tasks."""
    return "q-000003"


def mapped(dead, *bodies):
    """Map bodies; return (id, body) of the archived rows."""
    mapper = pickle.loads(pickle.dumps(BodyMapper(fail_on_b, dead, batch_of_task)))
    parts = filter(None, (bodies[:2], bodies[2:]))
    found = [row for batch in mapper(rows(*part) for part in parts) for row in batch.to_pylist()]
    assert all(row["topic"] == "t" and row["attempts"] == 2 for row in found)
    return [(int(row["message_id"], 16), row["body"]) for row in found]


def test_a_row_keeps_its_columns_and_gets_another_body():
    assert mapped(None, b"a", b"none", b"two", b"x") == [
        (0, b"A"), (0, b"1"), (0, b"2"), (1, b"X")]


def test_bad_rows_are_in_the_folder_when_the_task_ends(tmp_path, caplog):
    dead = open_folder(str(tmp_path / "dead"))
    assert mapped(dead, b"a", b"b1", b"b\xff", b"x") == [(0, b"A"), (1, b"X")]
    [file] = (tmp_path / "dead").glob("q-000003-*.jsonl")
    first, second = map(json.loads, file.read_text().splitlines())
    assert first == {
        "topic": "t", "channel": "c", "id": "%016x" % 1, "timestamp": 1, "attempts": 2,
        "nsqd": "n:1", "body": "b1", "error": "ValueError: not b1"}
    assert base64.b64decode(second["body_base64"]) == b"b\xff"
    assert f"q-000003: 2 rows failed: written to {tmp_path / 'dead'}" in caplog.text


def test_the_files_of_dead_letters_are_their_owners_alone(tmp_path):
    """With any umask. A task that runs again replaces its file."""
    former = os.umask(0)
    try:
        dead = open_folder(str(tmp_path / "new" / "dead"))
        for _ in range(2):
            mapped(dead, b"b1", b"a")
    finally:
        os.umask(former)
    entries = list((tmp_path / "new" / "dead").iterdir())
    assert {entry.stat().st_mode & 0o777 for entry in entries} == {0o600}
    assert len([entry for entry in entries if entry.suffix == ".jsonl"]) == 1
    for folder in (tmp_path / "new", tmp_path / "new" / "dead"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_two_parts_of_one_task_have_a_file_each(tmp_path):
    """With files_per_batch, Spark runs several parts of the source in a task of one number."""
    dead = open_folder(str(tmp_path))
    assert open_folder(str(tmp_path)) == dead  # for the next run, or another query
    mapped(dead, b"b1", b"a")
    mapped(dead, b"b2", b"a")
    mapped(dead, b"b1", b"a")  # the task runs again
    found = sorted(json.loads(file.read_text())["body"] for file in tmp_path.glob("*.jsonl"))
    assert found == ["b1", "b2"]


def test_a_task_that_fails_leaves_no_file(tmp_path):
    """It may lack rows, and the task runs again."""
    mapper = BodyMapper(fail_on_b, open_folder(str(tmp_path)), batch_of_task)

    def batches():
        yield rows(b"b1")
        raise OSError("the source failed")

    with pytest.raises(OSError, match="the source failed"):
        list(mapper(batches()))
    assert [entry.name for entry in tmp_path.iterdir()] == [".nsqclient-id"]


@pytest.mark.parametrize("other", [None, "another"])
def test_an_executor_that_does_not_see_the_folder_fails(tmp_path, other):
    """It would write the rows to its own disk."""
    dead = open_folder(str(tmp_path / "dead"))
    (tmp_path / "dead" / ".nsqclient-id").unlink()
    if other is not None:
        (tmp_path / "dead" / ".nsqclient-id").write_text(other)
    with pytest.raises(NSQError, match="use a folder that all executors share"):
        mapped(dead, b"b1", b"a")
    assert mapped(dead, b"a", b"x") and not list(tmp_path.rglob("*.jsonl"))  # it is not needed


def test_a_disk_that_takes_nothing_ends_the_task(tmp_path, monkeypatch):
    dead = open_folder(str(tmp_path))
    monkeypatch.setattr(
        dead_letter_folder, "open_private", lambda path: os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(NSQError, match="dead-letter path .*No space left"):
        mapped(dead, b"b1", b"a")
    assert list(tmp_path.glob("*.jsonl")) == []


@pytest.mark.parametrize("path, words", [
    ("hdfs://x/y", "dead-letter path 'hdfs://x/y': give an absolute path of a file system"),
    ("/dev/null/x", "dead-letter path /dev/null/x: cannot be used"),
])
def test_a_folder_that_cannot_be_used_is_an_error(path, words):
    with pytest.raises(ConfigError, match=words):
        open_folder(path)


def test_bad_rows_are_published_when_the_task_ends(caplog):
    with Nsqd() as nsqd:
        options = write_options({"nsqd": nsqd.tcp_address, "topic": "dead"})
        assert mapped(TopicDeadLetters(options), b"b1", b"a", b"b2", b"x") == [(1, b"A"), (1, b"X")]
        assert [message.body for message in nsqd.messages("dead")] == [b"b1", b"b2"]
    assert "q-000003: 2 rows failed: published to dead" in caplog.text


def test_nsqd_that_is_away_ends_the_task():
    """The failed rows must not be lost. Without failed rows nsqd is not needed."""
    dead = TopicDeadLetters(write_options(
        {"nsqd": "127.0.0.1:1", "topic": "dead", "publish_timeout": "100ms"}))
    assert mapped(dead, b"a", b"x") == [(0, b"A"), (1, b"X")]
    with pytest.raises(NSQError):
        mapped(dead, b"b1", b"a")


@pytest.mark.parametrize("arguments, words", [
    ({"is_mapped": False, "dead_letter_topic": "dead"}, "only map_body fails on rows"),
    ({"dead_letter_topic": "dead", "dead_letter_path": "/x"}, "give one of dead_letter_topic and"),
    ({"dead_letter_topic": "t"}, "into itself without end"),
    ({"sink_options": {"nsqd": "a:1"}}, "sink_options are for dead_letter_topic"),
    ({"dead_letter_topic": "dead", "sink_options": {"batchsize": "x"}}, "batchSize"),
    ({"dead_letter_path": "dead"}, "give an absolute path"),
])
def test_wrong_arguments_are_rejected(arguments, words):
    given = {"is_mapped": True, "dead_letter_topic": "", "dead_letter_path": "",
             "sink_options": {}, **arguments}
    with pytest.raises(ConfigError, match=words):
        choose_dead_letters(SOURCE, **given)


def test_dead_letters_go_where_messages_come_from(tmp_path):
    """The default; options of the sink can change it."""
    def choose(topic="dead", path="", **own):
        return choose_dead_letters(SOURCE, True, topic, path, own)

    found = choose()
    assert isinstance(found, TopicDeadLetters)
    assert (found.options.topic, found.options.nsqd) == ("dead", ("127.0.0.1:1",))
    other = choose(nsqd="a:1")
    assert isinstance(other, TopicDeadLetters) and other.options.nsqd == ("a:1",)
    assert dataclasses.is_dataclass(choose("", str(tmp_path))) and choose("") is None
    assert Path(tmp_path, ".nsqclient-id").exists()
