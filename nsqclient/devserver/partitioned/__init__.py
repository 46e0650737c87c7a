"""A partitioned NSQ cluster in this process: several nsqds and nsqlookupds over one state.

For tests of code that uses partitions, orders and traces; ``PartitionedCluster`` is the front.
There is no replication: a partition's messages live in the shared state, and "leader" only says
which nsqd serves them. What it does and does not do: ``docs/topics/partitions.rst``.
"""
