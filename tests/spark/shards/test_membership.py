"""Members on a storage: they find each other, divide shards, and notice the loss of others."""

from unittest.mock import Mock

import pytest

from nsqclient.spark.errors import StorageError
from nsqclient.spark.shards import membership as module
from nsqclient.spark.shards.membership import PROVEN_LOOKS, Membership
from nsqclient.spark.shards.names import ended_key, members
from tests.support.waiting import wait_until

NSQDS = ["a:1", "b:1", "c:1", "d:1"]


@pytest.fixture
def join(store):
    """Factory of members whose thread does not look by itself."""
    joined = []

    def start(nsqds=NSQDS, job=""):
        member = Membership(store, "t", "c", job)
        member._thread.start = lambda: None
        joined.append(member)
        member.join(nsqds)
        return member

    return start


def shards(*members):
    """Check that each shard has one member; return the shards of each member."""
    found = [member.assigned() for member in members]
    assert sorted(sum(found, [])) == NSQDS
    return found


@pytest.mark.parametrize("storage_kind", ["file", "s3"])
def test_members_divide_the_shards(join, store):
    first = join()
    first.look()
    second = join()
    first.look()
    assert [len(one) for one in shards(first, second)] == [2, 2]
    divided = shards(first, second)
    for _ in range(3):
        first.look()
        second.look()
    assert shards(first, second) == divided
    assert len(store.list_objects(members("t", "c"))) == 2


def test_what_a_member_reaches_may_change(join):
    """One member knows a new nsqd first."""
    first, second = join(["a:1"]), join(["a:1"])
    second.announce(["a:1", "b:1"])
    second.announce(["a:1", "b:1"])
    second.look()
    first.look()
    second.look()
    assert (first.assigned(), second.assigned()) == (["a:1"], ["b:1"])


def test_a_heartbeat_that_is_replaced_while_it_is_read_counts_as_the_former_one(
    join, store, monkeypatch
):
    first, second = join(), join()
    first.look()
    second.announce(["a:1"])
    second.look()
    listed = store.list_objects(members("t", "c"))
    second.look()
    monkeypatch.setattr(first._store, "list_objects", lambda folder: listed)
    first.look()
    assert len(first.assigned()) == 2
    monkeypatch.undo()
    first.look()
    assert first.assigned() == ["b:1", "c:1", "d:1"]


def test_a_job_ends_with_its_object(join, store):
    ours, others, plain = join(job="ab"), join(job="cd"), join()
    store.create(ended_key("t", "c", "ab"), b"")
    for member in (ours, others, plain):
        member.look()
    assert (ours.is_over, others.is_over, plain.is_over) == (True, False, False)
    assert ours.changed.is_set()


def test_a_storage_that_fails_changes_nothing(join, store, monkeypatch):
    """It is unknown which members are alive, so all shards stay."""
    first, second = join(), join()
    for member in (first, second, first):
        member.look()
    with monkeypatch.context() as patch:
        patch.setattr(first._store, "create", Mock(
            side_effect=StorageError(store.url, "503 Slow Down")))
        for _ in range(PROVEN_LOOKS * 2):
            with pytest.raises(StorageError, match="503"):
                first.look()
    first.look()
    second.look()
    assert [len(one) for one in shards(first, second)] == [2, 2]
    assert len(store.list_objects(members("t", "c"))) == 2


def test_the_thread_looks_and_survives_failures(store, monkeypatch, caplog):
    monkeypatch.setattr(module, "INTERVAL", 0.01)
    member = Membership(store, "t", "c")
    member.join(NSQDS)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(member, "look", Mock(side_effect=StorageError(store.url, "is away")))
            wait_until(lambda: "is away; trying again" in caplog.text, 30)
            patch.setattr(member, "look", lambda: 1 / 0)
            wait_until(lambda: "a heartbeat failed; the owner continues" in caplog.text, 30)
        before = member._serial
        wait_until(lambda: member._serial > before, 30, "it looks again")
    finally:
        member.leave()
    member.leave()
    assert store.list_objects(members("t", "c")) == []


def test_a_killed_owner_is_noticed_in_half_the_time_that_is_promised():
    """The promised 30 s include the next owner's first reads and msg_timeout."""
    assert (PROVEN_LOOKS + 1) * module.INTERVAL <= 15
