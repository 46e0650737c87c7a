"""Objects that are created if they are absent, on a folder and on an object store."""

import errno
import os
import pickle
import stat
import threading
import time
from unittest.mock import Mock

import pytest

from nsqclient.errors import ConfigError
from nsqclient.spark.errors import (
    ObjectNotFoundError, StorageError, StorageFullError, StorageUnsuitableError,
)
from nsqclient.spark.options import check_storage
from nsqclient.spark.storage import local
from nsqclient.spark.storage import open_store
from nsqclient.spark.storage.store import probe
from tests.support.servers.http_recorder import recording
from tests.support.servers.object_store import environment


@pytest.fixture(params=["file", "s3"])
def storage_kind(request):
    return request.param


def test_the_first_of_two_creates_wins(store):
    assert store.create("t/a", b"one")
    assert not store.create("t/a", b"two")
    assert store.read("t/a") == b"one"


def test_a_create_that_is_repeated_is_ours(store):
    """Its first answer may have been lost: what counts is whose bytes are there."""
    assert store.create("t/a", b"mine") and store.create("t/a", memoryview(b"mine"))


def test_of_many_creates_at_once_one_wins(store):
    won = []
    barrier = threading.Barrier(8)

    def create(number):
        barrier.wait()
        if store.create("t/raced", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [store.read("t/raced")]


def test_a_listing_begins_behind_a_key(store):
    keys = [f"t/x/{folder}/{number:03d}-5" for folder in ("00", "01") for number in range(3)]
    for key in (*keys, "t/y", "t/xx/1"):
        assert store.create(key, b"12345")
    listed = store.list_objects("t/x")
    assert [(found.key, found.size) for found in listed] == [(key, 5) for key in keys]
    assert all(abs(found.stored - time.time()) < 3600 for found in listed)
    assert [found.key for found in store.list_objects("t/x", "t/x/00/001")] == keys[1:]
    assert [found.key for found in store.list_objects("t/x", keys[1])] == keys[2:]
    assert [found.key for found in store.list_objects("t/x", "t/x/01")] == keys[3:]
    assert store.list_objects("t/x", keys[-1]) == store.list_objects("none") == []


def test_a_long_listing_is_whole(store, monkeypatch):
    """An object store gives so many at once, and a mark that leads to the next ones."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    keys = [f"t/{number:05d}" for number in range(25)]
    for key in keys:
        store.create(key, b"")
    assert [found.key for found in store.list_objects("t")] == keys
    assert [found.key for found in store.list_objects("t", keys[3])] == keys[4:]


def test_what_is_deleted_is_gone(store):
    store.create("t/a/1", b"one")
    store.delete(["t/a/1", "t/a/none"])
    store.delete(["t/a/1"])
    assert store.list_objects("t") == []
    with pytest.raises(ObjectNotFoundError) as failed:
        store.read("t/a/1")
    assert pickle.loads(pickle.dumps(failed.value)).key == "t/a/1"
    assert store.create("t/a/1", b"two")


def test_the_probe_leaves_nothing(store):
    probe(store)
    assert store.list_objects("%probe") == []


@pytest.mark.parametrize("created, there, words", [
    ([True, True], b"second", "honours If-None-Match"),
    ([True, False], b"second", "honours If-None-Match"),
    ([False], b"first", "is said to be there"), ([True, False], b"first", "does not list"),
])
def test_the_probe_refuses_an_unsuitable_storage(created, there, words):
    """Such as old servers with S3's protocol, which ignore the condition: no two writers there."""
    store = Mock(url="s3://old/x")
    store.create.side_effect = created
    store.read.return_value = there
    store.list_objects.return_value = []
    with pytest.raises(StorageUnsuitableError, match=words) as failed:
        probe(store)
    assert "\n" not in str(failed.value)
    store.delete.assert_called_once()


@pytest.mark.parametrize("url, words", [
    ("hdfs://node/x", "scheme 'hdfs' is not supported"),
    ("mnt/x", "give an absolute path"),
    ("file://host/mnt", "absolute path"), ("file:relative", "absolute path"),
    ("file:///", "absolute path"), ("s3:///x", "give a bucket"),
    ("s3://key:secret@bucket/x", "without user, password"),
    ("s3://bucket/x?secret=1", "without user, password"),
])
def test_a_wrong_url_is_refused_on_one_line(url, words):
    """And no secret in it is repeated."""
    with pytest.raises(ConfigError, match=words) as failed:
        check_storage(url)
    assert "\n" not in str(failed.value) and "secret" not in str(failed.value)


@pytest.mark.parametrize("url, found", [
    ("file:///mnt/nsq/", ("file", "/mnt/nsq")), ("s3://b", ("s3", "b")),
    ("s3a://b/c/d/", ("s3", "b/c/d")),
])
def test_the_right_urls_are_understood(url, found):
    assert check_storage(url) == found


def test_a_conflict_is_tried_again():
    """S3 answers so while another create of that key is under way."""
    conflict = 409, b"<Error><Code>ConditionalRequestConflict</Code></Error>"
    answers = [conflict, conflict, (200, b"")]
    with recording() as server, environment(server.url):
        server.headers = {"ETag": '"x"'}
        server.answer = lambda request: answers.pop(0)
        assert open_store("s3://bucket/x").create("t/a", b"one")
    assert [request.method for request in server.requests] == ["PUT"] * 3


def test_a_storage_that_is_gone_is_noticed_within_seconds(s3_endpoint):
    with environment("http://127.0.0.1:1"):
        began = time.monotonic()
        with pytest.raises(StorageError, match="the request failed: "):
            probe(open_store("s3://bucket/x"))
        assert time.monotonic() - began < 60


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written: Not a directory"):
        probe(open_store(f"file://{tmp_path}/file/x"))
    with pytest.raises(StorageError, match="Not a directory"):
        open_store(f"file://{tmp_path}/file").create("a", b"")


def test_files_of_a_folder_are_their_owners_alone(tmp_path):
    """They hold the bodies of messages."""
    store = open_store(f"file://{tmp_path}/s")
    store.create("t/a", b"one")
    modes = [stat.S_IMODE(os.stat(tmp_path / "s" / name).st_mode) for name in ("", "t", "t/a")]
    assert modes == [0o700, 0o700, 0o600]
    assert sorted(os.listdir(tmp_path / "s/t")) == ["a"]  # no temporary file


def test_a_link_whose_answer_was_lost_is_ours(tmp_path, monkeypatch):
    """Over NFS a link that was made may be said to fail."""
    store = open_store(f"file://{tmp_path}/s")
    link = os.link

    def lose(*arguments):
        link(*arguments)
        raise FileExistsError

    monkeypatch.setattr(local.os, "link", lose)
    assert store.create("t/a", b"one") and not store.create("t/a", b"two")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_volume_without_hard_links_is_used(tmp_path, monkeypatch, code):
    def refuse(source, target):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(local.os, "link", refuse)
    store = open_store(f"file://{tmp_path}/s")
    probe(store)
    assert store.create("t/a", b"one") and not store.create("t/a", b"two")
    assert os.listdir(tmp_path / "s/t") == ["a"] and store.read("t/a") == b"one"


def test_a_folder_that_is_deleted_between_two_steps_is_made_again(tmp_path, monkeypatch):
    """As it is when its last object is."""
    store = open_store(f"file://{tmp_path}/s")
    link = os.link
    failed = []

    def lose(source, target):
        if not failed:
            failed.append(target)
            raise FileNotFoundError
        link(source, target)

    monkeypatch.setattr(local.os, "link", lose)
    assert store.create("t/a", b"one") and failed


def test_a_file_is_on_the_disk_when_it_was_created(tmp_path, monkeypatch):
    """Its bytes, and then its name."""
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda one: synced.append(
        os.readlink(f"/proc/self/fd/{one}")) or fsync(one))
    store = open_store(str(tmp_path / "log"))
    store.create("t/a", b"x")
    assert os.path.basename(synced[-2]).startswith(".tmp-")
    assert synced[-1] == str(tmp_path / "log" / "t")


def test_a_full_disk_says_what_is_missing(tmp_path, monkeypatch):
    """Some space is kept for what lets segments be deleted."""
    disk = os.statvfs(tmp_path)
    store = open_store(str(tmp_path / "log"))
    assert store.missing_space(10 ** 18) == 0  # nothing is stored yet
    store.create("t/a", b"x")
    free = disk.f_bavail * disk.f_frsize
    assert store.missing_space(0) == 0 < store.missing_space(free + 2 ** 30)

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(local, "write_durably", full)
    with pytest.raises(StorageFullError, match="t/b cannot be written: No space left") as failed:
        store.create("t/b", b"xyz")
    assert pickle.loads(pickle.dumps(failed.value)).missing == 3
