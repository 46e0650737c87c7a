"""``nsqclient doctor``: looks at a cluster from the client's seat and says what is wrong.

``doctor`` is the tool: flags, exit status. ``examination`` decides what to look at, ``lookupd``,
``nsqd``, ``queues`` and ``clock`` each look at one thing, and ``findings`` is what they bring back,
shown by ``table``. Nothing is published, subscribed to or changed.
"""
