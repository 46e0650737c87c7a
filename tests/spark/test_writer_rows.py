"""The columns of a DataFrame, and the publishing of a task's rows."""

import json
import pickle
from concurrent.futures import Future
from unittest.mock import Mock

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from nsqclient import ConfigError, InvalidMessageError, PartitionError
from nsqclient.devserver import Nsqd
from nsqclient.spark.options import write_options
from nsqclient.spark.publishing import Columns, NsqStreamWriter, RowPublisher, check_columns


BODY = ("body", "binary")


class Recorder:
    def __init__(self):
        self.lists = []
        self.deferred = []

    def publish_many(self, topic, bodies):
        self.lists.append((topic, list(bodies)))
        return len(self.lists[-1][1])

    def publish_async(self, topic, body, defer=None):
        self.deferred.append((topic, body, defer))
        future = Future()
        future.set_result(None)
        return future


def options(**given):
    return write_options({"nsqd": "127.0.0.1:4150", **given})


def publish(columns, *batches, **given):
    producer = Recorder()
    publisher = RowPublisher(producer, options(**given), columns)
    for batch in batches:
        publisher.add(pa.RecordBatch.from_pydict(batch))
    return producer, publisher.finish()


ONLY_BODY = Columns("body", False, False)


def test_an_ordered_topic_is_refused_without_arguments_that_the_sink_lacks():
    producer = Recorder()
    producer.publish_many = Mock(side_effect=PartitionError(
        "topic t is ordered: give key=, which decides on the partition, or partition="))
    publisher = RowPublisher(producer, options(topic="t"), ONLY_BODY)
    publisher.add(pa.RecordBatch.from_pydict({"body": [b"x"]}))
    with pytest.raises(PartitionError, match="^topic t is ordered: Spark's sink has no column for"):
        publisher.finish()


@pytest.mark.parametrize("columns, given, words", [
    ([("bodi", "string")], {"topic": "t"}, "no column 'body'.*name it with bodyColumn, 'bodi'"),
    ([("body", "int")], {"topic": "t"}, "cast it, or use to_json"),
    ([BODY, ("topic", "int")], {}, "column topic is int"),
    ([BODY, ("defer_ms", "string")], {"topic": "t"}, "must be a whole number"),
    ([BODY, ("x", "int"), ("y", "int")], {"topic": "t"}, "no place for x, y: select body"),
    ([BODY, ("topic", "string")], {"topic": "t"}, "both the option topic .t. and a column"),
    ([BODY], {}, "give the option topic, or a column topic"),
])
def test_a_column_that_cannot_be_published_is_an_error_with_a_hint(columns, given, words):
    with pytest.raises(ConfigError, match=words):
        check_columns(columns, options(**given))


def test_the_body_is_binary_or_text_and_may_have_another_name():
    """Even the column ``topic`` can be the body."""
    assert check_columns([BODY], options(topic="t")) == ONLY_BODY
    found = check_columns([("topic", "string")], options(topic="t", bodyColumn="topic"))
    assert found == Columns("topic", False, False)


def test_mpubs_have_batch_size_rows_over_arrow_batches():
    producer, count = publish(
        ONLY_BODY, {"body": [b"a", b"b"]}, {"body": [b"c", b"d", b"e"]}, topic="t", batchSize="3")
    assert producer.lists == [("t", [b"a", b"b", b"c"]), ("t", [b"d", b"e"])]
    assert count == 5


@pytest.mark.parametrize("bodies, counts", [
    ([b"x" * 10] * 4, [2, 2]), ([b"a", b"x" * 90, b"b"], [1, 1, 1]),
])
def test_an_mpub_stays_under_batch_bytes(bodies, counts):
    producer, _ = publish(ONLY_BODY, {"body": bodies}, topic="t", batchBytes="32")
    assert [len(found) for _, found in producer.lists] == counts


def test_each_topic_has_mpubs_of_its_own():
    rows = {"topic": ["a", "b", "a"], "body": ["1", "2", "3"]}
    producer, count = publish(Columns("body", True, False), rows)
    assert producer.lists == [("a", [b"1", b"3"]), ("b", [b"2"])]
    assert count == 3


def test_deferred_rows_are_published_alone():
    rows = {"body": ["1", "2", "3"], "defer_ms": [1500, None, 0]}
    producer, count = publish(Columns("body", False, True), rows, topic="t", deferMs="250")
    assert producer.deferred == [("t", b"1", 1.5), ("t", b"2", 0.25)]
    assert producer.lists == [("t", [b"3"])]
    assert count == 3


@pytest.mark.parametrize("topic, body, words", [
    ("t", None, "body is null.*emptyBodies=dead_letter with deadLetterPath"),
    ("t", b"", "body is empty.*emptyBodies=skip"), (None, b"x", "its topic is null")])
def test_what_a_row_lacks_is_an_error_that_names_it(topic, body, words):
    """Rows are counted over the whole task."""
    with pytest.raises(InvalidMessageError, match=f"row 3 of this task: {words}"):
        publish(Columns("body", True, False), {"topic": ["t", "t"], "body": [b"a", b"b"]},
                {"topic": ["t", topic], "body": [b"c", body]})


@pytest.mark.parametrize("empty", [None, b""])
def test_rows_without_a_body_can_be_skipped(empty):
    rows = {"topic": ["a", "a", "b"], "body": [b"1", empty, b"3"], "defer_ms": [0, 9, 0]}
    publisher = RowPublisher(Recorder(), options(emptyBodies="skip"), Columns("body", True, True))
    publisher.add(pa.RecordBatch.from_pydict(rows))
    with pytest.raises(InvalidMessageError, match="row 3 of this task"):
        publisher.add(pa.RecordBatch.from_pydict({"topic": [None], "body": [b"4"], "defer_ms": [0]},
                                                 pa.schema([("topic", "string"), ("body", "binary"),
                                                            ("defer_ms", "int32")])))
    assert publisher._producer.lists == []
    assert (publisher.finish(), publisher.skipped) == (2, 1)
    assert publisher._producer.lists == [("a", [b"1"]), ("b", [b"3"])]
    publisher.add(pa.RecordBatch.from_pydict(
        {"topic": ["a"], "body": pa.array([empty], pa.binary()), "defer_ms": [0]}))
    assert (publisher.finish(), publisher.skipped) == (2, 2)


DEAD = {"emptyBodies": "dead_letter", "topic": "t"}
SCHEMA = StructType().add("id", LongType()).add("raw", BinaryType()).add("body", StringType())


@pytest.fixture
def in_batch(monkeypatch):
    """Run the code as a task of this batch and partition of one query."""

    def enter(batch, partition):
        task = Mock()
        task.getLocalProperty = {
            "sql.streaming.queryId": "q", "streaming.sql.batchId": str(batch)}.get
        task.partitionId.return_value = partition
        monkeypatch.setattr(pyspark.TaskContext, "get", lambda: task)

    return enter


def write_rows(writer, *rows):
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(("id", "raw", "body"), row)) for row in rows],
        pa.schema([("id", "int64"), ("raw", "binary"), ("body", "string")]))
    return pickle.loads(pickle.dumps(writer)).write(iter([batch]))


def letters_in(folder):
    return {file.name: [json.loads(line) for line in file.read_text().splitlines()]
            for file in sorted(folder.glob("*.jsonl"))}


def test_rows_without_a_body_are_kept_as_dead_letters_with_all_their_columns(
    tmp_path, in_batch, caplog,
):
    """A task that runs again writes the same file. Equal rows of other tasks are kept too."""
    folder = tmp_path / "dead"
    with Nsqd() as nsqd:
        writer = NsqStreamWriter(options(
            **DEAD, nsqd=nsqd.tcp_address, deadLetterPath=str(folder)), SCHEMA)
        for batch, partition in ((4, 1), (4, 1), (4, 2), (5, 1)):
            in_batch(batch, partition)
            done = write_rows(writer, (7, b"\xff", None), (8, None, "x"), (9, None, ""))
            assert (done.messages, done.skipped) == (1, 2)
        assert [message.body for message in nsqd.messages("t")] == [b"x"] * 4
        in_batch(6, 1)
        write_rows(writer, (1, None, "y"))
    writer.commit([done], 5)
    assert ("batch 5: skipped 2 rows whose body is null or empty (emptyBodies=dead_letter): written"
            f" to {folder}" in caplog.text)
    found = letters_in(folder)
    assert [name.rpartition("-")[0] for name in found] == ["q-000004", "q-000004", "q-000005"]
    assert found.popitem()[1] == [
        {"topic": "t", "partition": 1, "error": "body is null",
         "row": {"id": 7, "raw": "/w==", "body": None}},
        {"topic": "t", "partition": 1, "error": "body is empty",
         "row": {"id": 9, "raw": None, "body": ""}}]


def test_two_writes_without_a_query_have_files_of_their_own(tmp_path):
    with Nsqd() as nsqd:
        for _ in range(2):
            writer = NsqStreamWriter(options(
                **DEAD, nsqd=nsqd.tcp_address, deadLetterPath=str(tmp_path)), SCHEMA)
            for _ in range(2):
                write_rows(writer, (7, None, None))
    assert len(letters_in(tmp_path)) == 2


@pytest.mark.parametrize("given", [
    {"emptyBodies": "dead_letter"}, {"deadLetterPath": "/x"},
    {"emptyBodies": "skip", "deadLetterPath": "/x"}])
def test_dead_letters_need_the_option_and_the_folder(given):
    with pytest.raises(ConfigError, match="emptyBodies=dead_letter and deadLetterPath"):
        options(topic="t", **given)
