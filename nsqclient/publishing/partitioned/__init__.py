"""Publishing to partitioned NSQ: ``tables`` knows the leaders, ``pool`` keeps the connections,
``publisher`` chooses the partition and tries again, ``front`` is what Producer calls, ``deferred``
publishes asynchronously.

Apart from the stock way, which knows nothing of this: a Producer comes here only when its cluster
turns out to be partitioned.
"""
