"""A partitioned NSQ cluster in this process: several nsqds and nsqlookupds over one state.

For tests of code that uses partitions, ordering and traces; start it with ``PartitionedCluster``.
Nothing is replicated: the shared state has the messages of a partition, and its leader is the
nsqd that serves them. Its differences from a real cluster: ``docs/topics/devserver.rst``.
"""
