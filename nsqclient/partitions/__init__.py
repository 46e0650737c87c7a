"""Partitioned NSQ as values and decisions: no socket, thread, clock or log.

Answers of nsqlookupds and how they are merged, which partition a key belongs to, whether messages
come in order, what a trace says, and what follows from each refusal. The bytes are in
:mod:`nsqclient.protocol.extended`. ``docs/topics/partitions.rst`` tells the whole.
"""
