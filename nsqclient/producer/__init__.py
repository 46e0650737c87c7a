"""Publishes: nodes, synchronous and asynchronous publishes, outcomes.

``outcome`` says how an attempt ended; ``nodes`` are the nsqds, dialed in the background.
``publish`` is a publish in the calling thread; ``group_commit`` sends those of many threads
together. ``async_publisher`` publishes asynchronously, and ``futures`` are what it returns.
``batches`` has the rules that both share. ``discovery`` asks nsqlookupds for nsqds, ``stats``
counts.
"""
