"""Partitioned NSQ: its values, and its parts of Producer and Consumer.

Values and decisions, without a socket, thread, clock or log: ``lookup_table`` merges the answers of
nsqlookupds, ``sharding`` finds the partition of a key, ``retry_policy`` says what follows from each
refusal.

Publishing: ``producer`` finds out whether the cluster is a partitioned one; only then a Producer
uses the rest. It chooses the partition of a publish and repeats attempts, ``producer_metadata``
caches the leaders of the partitions, ``producer.queues`` has a queue for each
partition, for asynchronous publishes. Consuming: leaders of partitions, ordered handling, and
positions.

The bytes are in :mod:`nsqclient.protocol.extensions`, the manual's page is
``docs/topics/partitions.rst``.
"""
