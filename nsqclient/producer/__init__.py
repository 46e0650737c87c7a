"""Publishes: nodes, synchronous and asynchronous publishes, outcomes.

``outcome`` says how an attempt ended, and what follows from it; ``nodes`` are the nsqds, dialed in
the background; ``pool`` has the connections to one of them. ``publisher`` sends a publish in the
calling thread; ``async_publisher`` has queues, and threads that call it, and ``futures`` are what
it returns.
``discovery`` asks nsqlookupds for nsqds, ``stats`` counts.
"""
