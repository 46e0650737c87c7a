"""to_nsq by value: records, pace, progress, and invalid flags."""

import contextlib
import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqclient.cli import to_nsq
from nsqclient.cli import main
from nsqclient.cli.to_nsq import RecordPublisher, split_records
from nsqclient.devserver import Nsqd
from tests.support.docs.tool_runs import run_tool


def chunks(data, size):
    return [data[at:at + size] for at in range(0, len(data), size)]


def split(data, delimiter, size):
    return list(itertools.chain(*split_records(chunks(data, size), delimiter, 100)))


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("data, delimiter, records", [
    (b"one\ntwo\n", b"\n", [b"one", b"two"]),
    (b"\n\none\n\n\ntwo", b"\n", [b"one", b"two"]),
    (b"a--b---c--", b"--", [b"a", b"b", b"-c"]),
    (b"", b"\n", []),
])
def test_records_are_split_at_the_delimiter(data, delimiter, records, size):
    assert split(data, delimiter, size) == records


@given(st.binary(max_size=60), st.sampled_from([b"\n", b"\r\n", b"aba"]), st.integers(1, 60))
def test_records_do_not_depend_on_the_reads(data, delimiter, size):
    assert split(data, delimiter, size) == [r for r in data.split(delimiter) if r]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_record_that_is_too_long_is_rejected_early(size):
    reads = iter(chunks(b"good\n" + b"x" * 1000, size))
    records = []
    with pytest.raises(ValueError, match="it is over 100 bytes"):
        for found in split_records(reads, b"\n", 100):
            records += found
    assert records == [b"good"] and sum(map(len, reads)) >= 1000 - 100 - 2 * size


@pytest.mark.parametrize("data, delimiter, records", [
    (b"abcd--", b"--", [b"abcd"]), (b"abcd", b"--", [b"abcd"]), (b"abcde", b"--", []),
    (b"ab\nabcde\nab\n", b"\n", [b"ab"]),
])
def test_the_limit_is_that_of_a_message(data, delimiter, records):
    found = []
    with contextlib.suppress(ValueError):
        for each in split_records([data], delimiter, 4):
            found += each
    assert found == records


def test_the_progress_line_has_counts_and_the_rate():
    assert to_nsq.render(1000, 500, 1000, 2.0) == (
        " 50% 1,000 messages, 500 B, 500/s, 0:02 left")
    assert to_nsq.render(0, 0, None, 0.0) == "0 messages, 0 B, 0/s"
    stream = io.StringIO()
    line = to_nsq.Progress(stream, None)
    line.update(1, 1, last=True)
    assert stream.getvalue().startswith("\r1 message,") and stream.getvalue().endswith("\n")


class FakeProducer:
    def __init__(self):
        self.published = []

    def publish_many(self, topic, messages):
        self.published.append(messages)
        return len(messages)


@pytest.mark.parametrize(("count", "parts", "sizes"), [
    (10, 1, [10]), (10, 8, [2, 2, 2, 2, 2]), (3, 8, [1, 1, 1]), (80, 8, [10] * 8),
])
def test_round_robin_divides_the_records_of_one_read(count, parts, sizes):
    producer, records = FakeProducer(), [b"%d" % number for number in range(count)]
    publisher = RecordPublisher("name", producer, "t", 0.0, None, parts)
    publisher.publish(records)
    assert [len(part) for part in producer.published] == sizes
    assert [record for part in producer.published for record in part] == records
    assert publisher.stored == count


@pytest.mark.parametrize("words, stdin, expected", [
    (["one", "--rate=0", "two words", ""], b"not read\n", [b"one", b"two words"]),
    (["--", "--one"], b"", [b"--one"]),
    (["--input-file={file}"], b"not read\n", [b"of a", b"file"]),
    (["--format=jsonl"], b'{"topic": "x", "body": "o\\u006ee"}\n\n{"body_base64": "/w=="}',
     [b"one", b"\xff"]),
])
def test_messages_may_be_words_a_file_or_json_lines(tmp_path, words, stdin, expected):
    (tmp_path / "file").write_bytes(b"of a\nfile\n")
    words = [word.format(file=tmp_path / "file") for word in words]
    with Nsqd() as nsqd:
        done = run_tool("ours", "publish", "--topic=t", f"--nsqd-tcp-address={nsqd.tcp_address}",
                        *words, stdin=stdin)
        assert (done.returncode, done.stdout) == (0, b""), done.stderr
        assert [message.body for message in nsqd.messages("t")] == expected


def test_the_name_of_a_file_is_not_published(tmp_path, capsys):
    (tmp_path / "big.txt").write_bytes(b"x")
    assert main(["to_nsq", "--topic=t", "--nsqd-tcp-address=127.0.0.1:1",
                 str(tmp_path / "big.txt")]) == 2
    assert f"< {tmp_path / 'big.txt'}" in capsys.readouterr().err
