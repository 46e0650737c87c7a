"""Merging answers of nsqlookupds by value."""

import pytest

from nsqclient.protocol.partitioned.lookup_table import LookupTable, TopicMeta, TopicRoutes

META = TopicMeta(partition_num=2, ordered=True)
STOCK = TopicRoutes(plain=("n:1",))


def routes(partitions, meta=META, plain=()):
    return TopicRoutes(plain, partitions, meta, is_partitioned=True)


def table_of(*answers, leader="a"):
    """A table of nsqlookupds a, b, ... with these answers."""
    names = "abcdef"[:len(answers)]
    table = LookupTable(names)
    for name, answer in zip(names, answers):
        table.on_answer(name, answer, [(other, other == leader) for other in names])
    return table


def test_partitions_of_all_answers_are_merged():
    """An incomplete or missing answer removes nothing."""
    table = table_of(routes({}), routes({0: "n:1"}), routes({1: "n:2"}))
    assert table.merged() == routes({0: "n:1", 1: "n:2"})


@pytest.mark.parametrize("leader, events, nsqd", [
    # The answer of the leading nsqlookupd has precedence.
    ("a", [], "n:1"),
    ("b", [], "n:2"),
    # After a refusal the other nsqd is chosen; where all have refused, it begins again.
    ("a", [("on_refused", 0, "n:1")], "n:2"),
    ("a", [("on_refused", 0, "n:1"), ("on_refused", 0, "n:2")], "n:1"),
    ("a", [("on_refused", 0, "n:1"), ("on_accepted", 0, "n:1")], "n:1"),
    # The former answer of an nsqlookupd that fails, or is late, counts only without others.
    ("a", [("on_failure", "a")], "n:2"),
    ("a", [("on_failure", "a"), ("on_failure", "b")], "n:1"),
    ("a", [("on_late", "a")], "n:2"),
    ("a", [("on_late", "a"), ("on_late", "b"), ("on_late", "stranger")], "n:1"),
    ("a", [("on_late", "a"), ("on_answer", "a", routes({0: "n:3"}))], "n:3"),
])
def test_one_of_two_answers_counts(leader, events, nsqd):
    table = table_of(routes({0: "n:1"}), routes({0: "n:2"}), leader=leader)
    for name, *arguments in events:
        getattr(table, name)(*arguments)
    for _ in range(2):
        assert table.merged().partitions == {0: nsqd}


def test_a_late_lookupd_is_asked_as_ever():
    table = table_of(routes({0: "n:1"}), routes({0: "n:2"}))
    table.on_late("a")
    assert sorted(table.addresses) == ["a", "b"]


def test_stock_answers_are_plain_addresses():
    table = table_of(STOCK, TopicRoutes(plain=("n:1", "n:2")))
    merged = table.merged()
    assert merged.plain in (("n:1", "n:2"), ("n:2", "n:1"))
    assert (merged.partitions, merged.meta, merged.is_partitioned) == ({}, None, False)


def test_an_answer_may_have_partitions_and_plain_addresses():
    """During a migration, a topic may be on a stock and a partitioned cluster."""
    merged = table_of(STOCK, routes({0: "n:2"})).merged()
    assert (merged.plain, merged.partitions) == (("n:1",), {0: "n:2"})


def test_meta_without_partitions_is_skipped():
    """A nsqlookupd without the topic sends 0 partitions."""
    merged = table_of(routes({}, TopicMeta()), routes({})).merged()
    assert merged.meta == META
    assert table_of(routes({}, TopicMeta())).merged().partition_num == 0


def test_the_metadata_of_a_topic_stays_while_answers_have_none():
    """An nsqlookupd may lose its coordinator, and the topic is still ordered."""
    table = table_of(routes({0: "n:1", 1: "n:1"}), routes({0: "n:1"}, None))
    table.on_failure("a")
    assert table.merged().meta == META
    table.on_answer("a", routes({0: "n:1"}, None))
    assert table.merged().meta == META
    table.on_answer("b", routes({0: "n:1"}, TopicMeta(4)))
    assert table.merged().meta == TopicMeta(4)


def test_old_metadata_is_not_used_with_other_answers():
    table = table_of(routes({0: "n:1"}))
    table.on_answer("a", routes({2: "n:1"}, None))
    assert table.merged().meta is None
    table = table_of(routes({0: "n:1"}))
    table.on_answer("a", STOCK)
    assert table.merged().meta is None


def test_listed_lookupds_join_and_failing_ones_leave():
    """Seeds stay, however often they fail."""
    table = LookupTable(["seed"])
    table.on_answer("seed", routes({}), [("x", True), ("y", False)])
    assert sorted(table.addresses) == ["seed", "x", "y"]
    for _ in range(10):
        table.on_failure("x")
        table.on_failure("seed")
    assert sorted(table.addresses) == ["seed", "y"]


def test_failing_addresses_lose_priority():
    table = LookupTable(["a", "b"])
    table.on_answer("b", routes({}))
    table.on_failure("a")
    assert table.addresses == ["b", "a"]


def test_answers_of_forgotten_lookupds_are_dropped():
    table = LookupTable(["seed"])
    table.on_answer("stranger", routes({0: "n:1"}))
    table.on_failure("stranger")
    assert table.merged() == TopicRoutes()


def test_partitions_that_were_not_chosen_are_excluded():
    """Including those without a leader."""
    chosen = routes({0: "n:1", 2: "n:2"}, TopicMeta(6)).only({1, 2, 5})
    assert (chosen.partitions, chosen.excluded) == ({2: "n:2"}, {0, 3, 4})
    assert table_of(chosen).merged().usable_partitions == 3
