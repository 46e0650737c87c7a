"""Merging answers of nsqlookupds by value."""

from nsqclient.partitioned.lookup_table import LookupTable, TopicMeta, TopicRoutes

META = TopicMeta(partition_num=2, ordered=True)
STOCK = TopicRoutes(plain=("n:1",))


def routes(partitions, meta=META, plain=()):
    return TopicRoutes(plain, partitions, meta, is_partitioned=True)


def table_of(*answers, leader="a"):
    """A table of lookupds a, b, ... that gave these answers."""
    names = "abcdef"[:len(answers)]
    table = LookupTable(names)
    for name, answer in zip(names, answers):
        table.on_answer(name, answer, [(other, other == leader) for other in names])
    return table


def test_partitions_of_all_answers_are_merged():
    """An answer that is incomplete, or null, takes nothing away."""
    table = table_of(routes({}), routes({0: "n:1"}), routes({1: "n:2"}))
    assert table.merged() == routes({0: "n:1", 1: "n:2"})


def test_answer_of_the_leading_lookupd_has_precedence():
    assert table_of(routes({0: "n:1"}), routes({0: "n:2"})).merged().partitions == {0: "n:1"}
    assert table_of(
        routes({0: "n:1"}), routes({0: "n:2"}), leader="b").merged().partitions == {0: "n:2"}


def test_after_a_refusal_the_other_nsqd_is_chosen():
    table = table_of(routes({0: "n:1"}), routes({0: "n:2"}))
    table.on_refused(0, "n:1")
    assert table.merged().partitions == {0: "n:2"}
    table.on_refused(0, "n:2")
    assert table.merged().partitions == {0: "n:1"}  # all refused: begin again
    assert table.merged().partitions == {0: "n:1"}


def test_an_accepted_publish_ends_the_refusal():
    table = table_of(routes({0: "n:1"}), routes({0: "n:2"}))
    table.on_refused(0, "n:1")
    table.on_accepted(0, "n:1")
    assert table.merged().partitions == {0: "n:1"}


def test_the_answer_of_a_failing_lookupd_is_used_only_without_others():
    """Old answers count only while there is no newer one."""
    table = table_of(routes({0: "n:1"}), routes({0: "n:2"}))
    table.on_failure("a")
    assert table.merged().partitions == {0: "n:2"}
    table.on_failure("b")
    assert table.merged().partitions == {0: "n:1"}


def test_the_answer_of_a_late_lookupd_is_used_only_without_others():
    """Its former answer does not outvote the others; it is asked as ever."""
    table = table_of(routes({0: "n:1"}), routes({0: "n:2"}))
    table.on_late("a")
    assert table.merged().partitions == {0: "n:2"}
    assert sorted(table.begin_round()) == ["a", "b"]
    table.on_late("b")
    table.on_late("stranger")
    assert table.merged().partitions == {0: "n:1"}
    table.on_answer("a", routes({0: "n:3"}))
    assert table.merged().partitions == {0: "n:3"}


def test_stock_answers_are_plain_addresses():
    table = table_of(STOCK, TopicRoutes(plain=("n:1", "n:2")))
    merged = table.merged()
    assert merged.plain in (("n:1", "n:2"), ("n:2", "n:1"))
    assert (merged.partitions, merged.meta, merged.is_partitioned) == ({}, None, False)


def test_an_answer_may_have_partitions_and_plain_addresses():
    """During a migration a topic may be on a stock cluster and on a partitioned one."""
    merged = table_of(STOCK, routes({0: "n:2"})).merged()
    assert (merged.plain, merged.partitions) == (("n:1",), {0: "n:2"})


def test_meta_without_partitions_is_skipped():
    """A lookupd without the topic sends 0 partitions; the answer of another one counts."""
    merged = table_of(routes({}, TopicMeta()), routes({})).merged()
    assert merged.meta == META
    assert table_of(routes({}, TopicMeta())).merged().partition_num == 0


def test_the_metadata_of_a_topic_stays_while_answers_have_none():
    """An nsqlookupd may lose its coordinator: the topic is ordered all the same."""
    table = table_of(routes({0: "n:1", 1: "n:1"}), routes({0: "n:1"}, None))
    table.on_failure("a")
    assert table.merged().meta == META
    table.on_answer("a", routes({0: "n:1"}, None))
    assert table.merged().meta == META
    table.on_answer("b", routes({0: "n:1"}, TopicMeta(4)))
    assert table.merged().meta == TopicMeta(4)


def test_old_metadata_is_not_used_with_other_answers():
    """Where partitions were added, keys belong elsewhere; a stock topic has no metadata."""
    table = table_of(routes({0: "n:1"}))
    table.on_answer("a", routes({2: "n:1"}, None))
    assert table.merged().meta is None
    table = table_of(routes({0: "n:1"}))
    table.on_answer("a", STOCK)
    assert table.merged().meta is None


def test_listed_lookupds_join_and_failing_ones_leave():
    """Nodes of /listlookup are asked too; seeds stay however often they fail."""
    table = LookupTable(["seed"])
    table.on_answer("seed", routes({}), [("x", True), ("y", False)])
    assert sorted(table.begin_round()) == ["seed", "x", "y"]
    for _ in range(10):
        table.on_failure("x")
        table.on_failure("seed")
    assert sorted(table.addresses) == ["seed", "y"]


def test_failing_addresses_lose_priority():
    table = LookupTable(["a", "b"])
    table.on_answer("b", routes({}))
    table.on_failure("a")
    assert table.addresses == ["b", "a"]
    assert table.begin_round() == ["b"]
    assert table.begin_round() == ["b", "a"]
    table.on_failure("a")
    assert [len(table.begin_round()) for _ in range(3)] == [1, 1, 2]


def test_every_lookupd_is_asked_while_none_answers():
    table = LookupTable(["a", "b"])
    table.on_failure("a")
    table.on_failure("b")
    assert len(table.begin_round()) == 2
    table.on_answer("b", STOCK)
    assert len(table.begin_round()) == 2


def test_answers_of_forgotten_lookupds_are_dropped():
    table = LookupTable(["seed"])
    table.on_answer("stranger", routes({0: "n:1"}))
    table.on_failure("stranger")
    assert table.merged() == TopicRoutes()


def test_partitions_that_were_not_chosen_are_excluded():
    """Those without a leader, too; the others have a message in flight each."""
    chosen = routes({0: "n:1", 2: "n:2"}, TopicMeta(6)).only({1, 2, 5})
    assert (chosen.partitions, chosen.excluded) == ({2: "n:2"}, {0, 3, 4})
    assert table_of(chosen).merged().usable_partitions == 3
