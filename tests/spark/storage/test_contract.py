"""The contract of a storage, and owners and readers on it, on each kind of storage.

MinIO and Azurite run in ``make test-external``, if they could be fetched.
"""

import pickle
import threading
import time

import pytest

from nsqclient.spark.errors import LogInUseError, ObjectNotFoundError, StorageError
from nsqclient.spark.shards import reader_claim
from nsqclient.spark.shards.membership import PROVEN_LOOKS, Membership
from nsqclient.spark.shards.names import members, reader_beat, readers
from nsqclient.spark.shards.reader_claim import ReaderClaim
from nsqclient.spark.storage import open_store, probe
from tests.support.waiting import wait_until


@pytest.fixture(params=["file", "s3", "gs", *(
    pytest.param(kind, marks=pytest.mark.external)
    for kind in ("minio", "azurite", "azurite-key"))])
def storage_kind(request):
    return request.param


def test_the_first_of_two_creates_wins(store):
    assert store.create("t/a", b"one")
    assert not store.create("t/a", b"two")
    assert store.read("t/a") == b"one"


def test_a_create_that_is_repeated_is_ours(store):
    """The first answer may have been lost, so the stored bytes are compared."""
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
    """An object store lists in pages."""
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


def test_an_empty_deletion_and_a_long_one(store):
    """On Azure, obstore would leave some keys of a list with a missing key."""
    keys = [f"t/{number:05d}" for number in range(60)]
    for key in keys[::2]:
        store.create(key, b"")
    store.delete([])
    store.delete(iter(keys))
    assert store.list_objects("t") == []


def test_the_folders_of_a_folder(store):
    for key in ("t/c d/x", "t/c d/y/z", "t/e/x", "t/x", "u/c/x"):
        store.create(key, b"")
    assert store.list_folders("t") == ["c d", "e"]
    assert store.list_folders("") == ["t", "u"]
    assert store.list_folders("none") == []


class _Flaky:
    """A storage whose creates fail while ``fails`` is set."""

    def __init__(self, store):
        self._store = store
        self.fails = False

    def __getattr__(self, name):
        return getattr(self._store, name)

    def create(self, key, data):
        if self.fails:
            raise StorageError(self._store.url, "503, once")
        return self._store.create(key, data)


def test_an_owner_goes_on_after_a_heartbeat_that_could_not_be_stored(store):
    nsqds = ["a:1", "b:1"]
    flaky = _Flaky(store)
    first, second = Membership(flaky, "t", "c"), Membership(store, "t", "c")
    for member in (first, second):
        member._thread.start = lambda: None  # they look when the test says so
        member.join(nsqds)
    first.look()
    flaky.fails = True
    with pytest.raises(StorageError):
        first.look()
    flaky.fails = False
    first.look()
    assert len(first.assigned()) == 1
    assert len([one for one in store.list_objects(members("t", "c")) if first.name in one.key]) == 1
    for _ in range(PROVEN_LOOKS):
        first.look()
    assert first.assigned() == nsqds
    second.leave()  # its heartbeat is deleted already
    first.leave()
    assert store.list_objects(members("t", "c")) == []


def test_a_query_that_was_suspended_notices_that_another_one_reads(store, monkeypatch):
    """The other query has deleted its heartbeats."""
    monkeypatch.setattr(reader_claim, "INTERVAL", 0.02)
    claim = ReaderClaim(store, "t", "c")
    claim.take()
    try:
        wait_until(lambda: len(store.list_objects(readers("t", "c"))) > 1, 30, "it has a heartbeat")
        store.delete([one.key for one in store.list_objects(readers("t", "c"))])
        store.create(reader_beat("t", "c", 2, 0), b"{}")
        wait_until(lambda: claim._error is not None, 30, "it looks")
        with pytest.raises(LogInUseError, match="another query has begun"):
            claim.check()
    finally:
        claim.release()
    assert store.read(reader_beat("t", "c", 2, 0)) == b"{}"


def test_a_bucket_that_is_not_there_is_named(store, storage_kind):
    if storage_kind == "file":
        return
    url = store.url.replace("bucket-", "no-such-bucket-")
    for ask in (probe, lambda one: one.list_objects("t")):
        with pytest.raises(StorageError, match="there is no bucket no-such-bucket-") as failed:
            ask(open_store(url))
        assert "\n" not in str(failed.value)
