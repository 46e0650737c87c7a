"""A query with a spool goes on with shared storage: nothing is lost or doubled. No JVM."""

from __future__ import annotations

import contextlib
import json
import os

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadMaxRows  # noqa: E402 - needs pyspark

from nsqclient.cli.spark import main  # noqa: E402 - needs pyspark
from nsqclient.spark import checkpoint as checkpoint_module  # noqa: E402 - needs pyspark
from nsqclient.spark.errors import (  # noqa: E402 - needs pyspark
    CheckpointError, DataLossError, SpoolLockedError, SpoolMismatchError, StorageError,
)
from nsqclient.spark.migration import migrate  # noqa: E402 - needs pyspark
from nsqclient.spark.options import read_options  # noqa: E402 - needs pyspark
from nsqclient.spark.reader import NsqStreamReader  # noqa: E402 - needs pyspark
from nsqclient.spark.shard_reader import NsqShardReader  # noqa: E402 - needs pyspark
from nsqclient.spark.shards.names import ShardKeys  # noqa: E402 - needs pyspark
from nsqclient.spark.shards.shard_log import ShardLog  # noqa: E402 - needs pyspark
from nsqclient.spark.spool import spool as spool_module  # noqa: E402 - needs pyspark
from nsqclient.spark.spool.known_ids import Claim  # noqa: E402 - needs pyspark
from nsqclient.spark.spool.retention import Retention  # noqa: E402 - needs pyspark
from nsqclient.spark.spool.segment import encode_segment  # noqa: E402 - needs pyspark
from nsqclient.spark.spool.spool import Spool  # noqa: E402 - needs pyspark
from nsqclient.spark.storage.store import open_store  # noqa: E402 - needs pyspark
from tests.support.docs.pages import named  # noqa: E402 - needs pyspark
from tests.support.docs.terminal import Terminal  # noqa: E402 - needs pyspark

A, B = "a:4150", "b:4150"
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1769860800000,"conf":{}}\n'


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.long)])
def storage_kind(request):
    """Both, the slower one in the longer tests: ``storage/test_store.py`` shows that they agree."""
    return request.param


@pytest.fixture
def query(tmp_path):
    """A spool with segments 1 to 6, of which 4 and 6 have messages of two nsqds, and a checkpoint
    with batches that end at 2, which is committed, and at 5, which is only planned."""
    spool = Spool(str(tmp_path / "cp/nsq-spool"), "t", "c", retention=Retention(600.0, 10**9))
    spool.open(patience=0)
    for number in range(1, 7):
        nsqds = (A, B) if number in (4, 6) else (A,)
        parts = [(nsqd, [(1, 1, ident(nsqd, number), b"%s %d" % (nsqd[:1].encode(), number))])
                 for nsqd in nsqds]
        tmp = spool.write_tmp(encode_segment("t", "c", parts))
        spool.append(tmp, len(parts), [Claim(nsqd, f"{nsqd}{number}", 10, [one[0][2]])
                                       for nsqd, one in parts])
        for nsqd in nsqds:
            if number != 1:  # whose FIN is perhaps lost
                spool.conn_closed(f"{nsqd}{number}", clean=True)
    for number in (1, 2):
        spool.mark_committed(number)
    spool.close()
    for name, numbers in (("offsets", (1, 2, 5)), ("commits", (1, 2))):
        (tmp_path / "cp" / name).mkdir()
        for batch, number in enumerate(numbers):
            text = HEAD + json.dumps({"seq": number}) if name == "offsets" else "v1\n{}"
            (tmp_path / "cp" / name / str(batch)).write_text(text)
            (tmp_path / "cp" / name / f".{batch}.crc").write_text("of the text before")
    return tmp_path / "cp"


def ident(nsqd, number):
    """The id of a message."""
    return b"%s%015d" % (nsqd[:1].encode(), number)


def move(query, store):
    """Migrate."""
    return migrate(str(query / "nsq-spool"), str(query), store)


def offset(query, batch):
    """The offset of the source at the end of a batch."""
    text = (query / "offsets" / str(batch)).read_text()
    assert text.startswith(HEAD)
    assert not (query / "offsets" / f".{batch}.crc").exists()
    return json.loads(text.removeprefix(HEAD))


def rest(query, store):
    """What the query reads from its checkpoint on: of the planned batch, and of the next ones."""
    reader = NsqShardReader(read_options(
        {"topic": "t", "channel": "c", "storage": store.url, "listIntervalMs": "1"}, "stream"))
    try:
        start, planned = offset(query, 1), offset(query, 2)
        end = reader.latestOffset(planned, ReadMaxRows(1000))
        return [sorted(bytes(body).decode() for task in reader.partitions(*one)
                       for rows in reader.read(task) for body in rows.column("body").to_pylist())
                for one in ((start, planned), (planned, end))]
    finally:
        reader.stop()


REST = [["a 3", "a 4", "a 5", "b 4"], ["a 6", "b 6"]]


@pytest.mark.parametrize("storage_kind", ["file", "s3"])
def test_the_query_goes_on_where_it_was(query, store):
    """A planned batch has the rows that it had, since its sink may have them already."""
    done = move(query, store)
    assert str(done) == "6 messages of t/c copied into 2 shards"
    assert offset(query, 1) == {"v": 2, "shards": {A: 0, B: 0}}
    assert offset(query, 2) == {"v": 2, "shards": {A: 3, B: 1}}
    assert rest(query, store) == REST
    assert move(query, store).topic == "t" and rest(query, store) == REST


def test_its_owners_drop_what_comes_again(query, store):
    """Messages of which FIN was perhaps lost, also of segments that were not copied."""
    move(query, store)
    log = ShardLog(store, ShardKeys("t", "c", A))
    log.open()
    ids = [ident(A, 1), ident(A, 6), b"new" + bytes(13)]
    data = encode_segment("t", "c", [(A, [(1, 1, one, b"x") for one in ids])])
    found = log.append(log.write_tmp(data), 3, [Claim(A, "c-0", 10, ids)])
    assert found.copies == [[0, 1]] and log.end == (4, 4)


class Killed(BaseException):
    """Ends a migration in the middle."""


@pytest.mark.parametrize("step", range(24))
def test_a_migration_that_is_killed_is_repeated(query, tmp_path, monkeypatch, step):
    """After any of its writes; until it is over no owner begins."""
    store = open_store(f"file://{tmp_path}/storage")
    left = [step]

    def dying(call):
        def die(*arguments):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return call(*arguments)
        return die

    with monkeypatch.context() as patch:
        patch.setattr(store, "create", dying(store.create))
        patch.setattr(checkpoint_module, "_replace", dying(checkpoint_module._replace))
        patch.setattr(spool_module.SpoolFolder, "write_committed",
                      dying(spool_module.SpoolFolder.write_committed))
        is_over = True
        try:
            move(query, store)
        except Killed:
            is_over = False
    keys = ShardKeys("t", "c", "c:4150")
    if not is_over and store.list_objects("t/c/migration"):
        with pytest.raises(StorageError, match="has begun and is not over: run nsqclient spark mi"):
            ShardLog(store, keys).open()
        store.delete([keys.shard])
    assert is_over == (step > 17)
    move(query, store)
    assert rest(query, store) == REST
    ShardLog(store, keys).open()


def test_a_query_that_has_planned_nothing_goes_on(query, store):
    """It begins with all that its spool has."""
    for name in ("offsets", "commits"):
        for file in (query / name).iterdir():
            file.unlink()
    assert move(query, store).shards == [A, B]
    reader = NsqShardReader(read_options(
        {"topic": "t", "channel": "c", "storage": store.url}, "stream"))
    assert reader.initialOffset() == {"v": 2, "shards": {A: 0, B: 0}}
    reader.stop()


def test_the_spool_was_read_to_its_end(query, store):
    """A query with another checkpoint reads none of it again, and this one refuses it."""
    move(query, store)
    texts = {"topic": "t", "channel": "c", "nsqd": "127.0.0.1:1",
             "spoolDir": str(query / "nsq-spool")}
    spool = Spool(texts["spoolDir"], "t", "c")
    spool.open(patience=0)
    assert spool.committed == 6
    spool.close()
    with pytest.raises(Exception, match="the checkpoint is of a query with storage"):
        NsqStreamReader(read_options(texts, "stream"), "file").partitions(
            offset(query, 1), offset(query, 2))


def test_what_cannot_be_migrated_is_refused(query, store, monkeypatch, tmp_path):
    """With the reason on one line; nothing is changed."""
    monkeypatch.setattr("nsqclient.spark.migration._PATIENCE", 0)
    spool = Spool(str(query / "nsq-spool"), "t", "c")
    spool.open(patience=0)
    with pytest.raises(SpoolLockedError, match="is used by process"):
        move(query, store)
    spool.close()
    with pytest.raises(SpoolMismatchError, match="there is none"):
        migrate(str(tmp_path / "none"), str(query), store)
    with pytest.raises(CheckpointError, match="there is no such folder"):
        migrate(str(query / "nsq-spool"), str(tmp_path / "none"), store)
    ShardLog(store, ShardKeys("t", "c", A)).open()
    with pytest.raises(StorageError, match=f"has shards of t/c already .{A}.: migrate before"):
        move(query, store)
    assert json.loads((query / "offsets/2").read_text().split("\n")[2]) == {"seq": 5}
    assert not store.list_objects("t/c/migration")


@pytest.mark.parametrize("text, words", [
    ("v2\n{}", "has format 'v2', and not v1"), (HEAD + "-", "has 0 offsets of nsq"),
    (HEAD + '{"seq": 2}\n{"seq": 3}', "has 2 offsets of nsq"),
])
def test_a_checkpoint_of_another_kind_is_refused(query, store, text, words):
    """The file is named."""
    (query / "offsets/2").write_text(text)
    with pytest.raises(CheckpointError, match=words) as failed:
        move(query, store)
    assert str(query / "offsets/2") in str(failed.value) and "\n" not in str(failed.value)


def test_a_spool_that_lacks_what_the_checkpoint_needs_is_a_loss(query, store):
    """As for the query itself."""
    [name] = [one for one in os.listdir(query / "nsq-spool") if one.startswith("000000000004-")]
    (query / "nsq-spool" / name).unlink()
    with pytest.raises(DataLossError, match="lacks segments 4"):
        move(query, store)
    assert not store.list_objects("t/c/a:4150")


@pytest.mark.parametrize("words, status, text", [
    ([], 2, "--checkpoint required"), (["--checkpoint=/nowhere"], 2, "--storage required"),
    (["--checkpoint=hdfs://x/cp", "--storage=file:///x"], 1, "copy the folder here"),
    (["--checkpoint=/nowhere", "--storage=gs://x"], 1, "scheme 'gs' is not supported"),
])
def test_a_wrong_command_line_is_an_error(words, status, text, capsys):
    """Before anything is touched."""
    assert main(["migrate", *words]) == status
    assert text in capsys.readouterr().err


def test_the_command_of_the_manual_moves_a_query(query, tmp_path):
    """It says what to do next, as the page shows it."""
    (tmp_path / "data/checkpoints").mkdir(parents=True)
    query.rename(tmp_path / "data/checkpoints/events")
    [block] = named("nsqclient spark migrate")
    with contextlib.closing(Terminal(tmp_path, {"/data": str(tmp_path / "data")})) as terminal:
        started = terminal.start(block.commands[0])
        assert started.end() == 0, started.log
        last = block.text.strip().splitlines()[-1].strip()
        assert started.output.splitlines() == [
            "6 messages of t/c copied into 2 shards",
            last.replace("/data", str(tmp_path / "data"))]


def test_the_command_finds_the_spool_in_the_checkpoint(query, tmp_path, capsys):
    """And it refuses a checkpoint that was moved to another storage."""
    where = [f"--checkpoint=file://{query}", f"--storage=file://{tmp_path}/s"]
    assert main(["migrate", *where]) == 0
    assert capsys.readouterr().out.startswith("6 messages of t/c copied into 2 shards\nstart own")
    assert main(["migrate", where[0], f"--storage=file://{tmp_path}/other"]) == 1
    assert "is of a query with storage already" in capsys.readouterr().err
