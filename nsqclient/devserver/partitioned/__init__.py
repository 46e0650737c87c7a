"""A partitioned NSQ cluster in this process: several nsqds and nsqlookupds over one state.

Nothing is replicated: the shared state has the messages of a partition, and its leader is the
nsqd that serves them. Its differences from a real cluster: ``docs/topics/devserver.rst``.
"""
