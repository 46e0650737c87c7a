"""Which members live, and which shards each of them has: decided from listings alone."""

import random

import pytest

from nsqclient.spark.shards.membership import (
    PROVEN_LOOKS, UNPROVEN_LOOKS, Members, assign, digest_of,
)
from nsqclient.spark.shards.names import MemberKey, ended_key, heartbeat_key, parse_heartbeat

NSQDS = [f"node{number}:4150" for number in range(50)]


def beat(member, serial, digest="0" * 16):
    return MemberKey(member, serial, digest)


def names(members):
    return sorted(key.member for key in members.alive)


def test_a_key_of_a_heartbeat_says_what_it_was_made_of():
    key = MemberKey("0a" * 16, 7, digest_of(["a:1"]))
    assert parse_heartbeat(heartbeat_key("t", "c#x", key)) == key
    assert heartbeat_key("t", "c#x", key).startswith("t/c%23x/owners/")
    assert parse_heartbeat(ended_key("t", "c#x", "0a" * 16)) is None


def test_a_member_that_beats_lives():
    members = Members()
    for serial in range(1, 20):
        assert members.look([beat("a", serial - 1), beat("a", serial)]) == []
        assert members.alive == [beat("a", serial)]


def test_a_member_without_new_heartbeats_is_dead():
    members = Members()
    members.look([beat("a", 1)])
    members.look([beat("a", 2)])
    for _ in range(PROVEN_LOOKS - 1):
        assert members.look([beat("a", 2)]) == [] and names(members) == ["a"]
    assert members.look([beat("a", 1), beat("a", 2)]) == [beat("a", 1), beat("a", 2)]
    assert names(members) == []


def test_what_a_dead_member_left_long_ago_is_noticed_sooner():
    """So a process that is restarted after a kill does not wait long for its predecessor."""
    members = Members()
    for look in range(UNPROVEN_LOOKS):
        assert members.look([beat("a", 9)]) == [] and names(members) == ["a"], look
    assert members.look([beat("a", 9)]) == [beat("a", 9)]


def test_a_member_that_was_stopped_comes_back():
    members = Members()
    for _ in range(PROVEN_LOOKS + 1):
        members.look([beat("a", 1)])
    members.look([])
    members.look([beat("a", 2)])
    assert names(members) == ["a"]


def test_a_member_that_leaves_is_gone_at_once():
    members = Members()
    members.look([beat("a", 1), beat("b", 1)])
    members.look([beat("b", 2)])
    assert names(members) == ["b"]


def test_every_shard_has_one_member_and_none_has_more_than_its_share():
    for count in (1, 2, 3, 4, 7, 50, 60):
        reached = {f"{member}": NSQDS for member in range(count)}
        found = assign(reached)
        assert sorted(sum(found.values(), [])) == sorted(NSQDS)
        assert max(map(len, found.values())) == -(-50 // count)
        assert found == assign({member: NSQDS[::-1] for member in reversed(reached)})


def test_a_shard_goes_to_a_member_that_reaches_it():
    """Some processes reach only the nsqd beside them, and one reaches all nsqds."""
    found = assign({"a": ["a:1"], "b": ["b:1"], "all": ["a:1", "b:1", "c:1"], "none": []})
    assert found["all"] and "c:1" in found["all"] and found["none"] == []
    assert sorted(sum(found.values(), [])) == ["a:1", "b:1", "c:1"]
    assert assign({"a": ["x:1", "y:1"], "b": []}) == {"a": ["x:1", "y:1"], "b": []}
    assert assign({"a": []}) == {"a": []} and assign({}) == {}


def test_no_shard_of_the_others_moves_when_a_member_leaves():
    before = assign({f"{member}": NSQDS for member in range(5)})
    left = {name: before[name] for name in "1234"}
    after = assign(dict.fromkeys("1234", NSQDS), left)
    assert all(set(before[name]) <= set(after[name]) for name in after)
    assert sorted(map(len, after.values())) == [12, 12, 13, 13]
    assert assign(dict.fromkeys("1234", NSQDS), after) == after


def test_only_the_shards_of_a_new_member_move_when_it_joins():
    before = assign(dict.fromkeys("1234", NSQDS))
    after = assign(dict.fromkeys("12345", NSQDS), before)
    assert all(set(after[name]) <= set(before[name]) for name in "1234")
    assert list(map(len, after.values())) == [10, 10, 10, 10, 10]


def test_a_shard_that_a_member_cannot_reach_any_more_goes_to_another():
    """Even if the member still claims it. Of two claimants, all members choose the same."""
    assert assign({"a": [], "b": ["x:1"]}, {"a": ["x:1"]}) == {"a": [], "b": ["x:1"]}
    both = dict.fromkeys("ab", ["x:1"])
    assert assign(dict.fromkeys("ab", ["x:1"]), both) == assign(dict.fromkeys("ba", ["x:1"]), both)


@pytest.mark.parametrize("seed", range(40))
def test_members_that_look_in_any_order_come_to_one_division(seed):
    """Members see old heartbeats, die and join. In the end no shard moves."""
    rng = random.Random(seed)
    nsqds = NSQDS[:rng.randint(1, 20)]
    heartbeats: dict[str, list[str]] = {}
    assigned: dict[str, list[str]] = {}

    def look(name):
        heartbeats[name] = assigned.setdefault(name, [])
        assigned[name] = assign(dict.fromkeys(heartbeats, nsqds), heartbeats)[name]

    for number in range(40):
        if rng.random() < 0.2 or len(heartbeats) < 2:
            look(f"new {number}")
        elif rng.random() < 0.1:
            gone = rng.choice(list(heartbeats))
            del heartbeats[gone], assigned[gone]
        else:
            look(rng.choice(list(heartbeats)))
    for _ in range(4):
        for name in rng.sample(list(heartbeats), len(heartbeats)):
            look(name)
    settled = dict(assigned)
    assert sorted(sum(settled.values(), [])) == sorted(nsqds)
    for name in list(heartbeats):
        look(name)
    assert assigned == settled


def test_a_digest_does_not_depend_on_the_order():
    assert digest_of(["b:1", "a:1"]) == digest_of(["a:1", "b:1"]) != digest_of(["a:1"])
    assert digest_of(["a:1"], ["a:1"]) != digest_of(["a:1"]) != digest_of([], ["a:1"])
    assert len(digest_of([])) == 16
