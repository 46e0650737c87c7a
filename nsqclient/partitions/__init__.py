"""Partitioned NSQ as values and decisions: no socket, thread, clock or log.

``lookup_table`` merges the answers of nsqlookupds, ``sharding`` finds the partition of a key,
``ordering`` checks the order of messages, ``retry_policy`` says what follows from each refusal,
``tracing`` what is logged. The bytes are in :mod:`nsqclient.protocol.extensions`, the manual's page
is ``docs/topics/partitions.rst``.
"""
