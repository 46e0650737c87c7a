"""Publishes: nodes, synchronous and asynchronous publishes, outcomes.

``outcome`` says how an attempt ended, and what follows from it; ``nodes`` are the nsqds, dialed in
the background; ``pool`` has the connections of publish(). ``publisher`` is a publish in the calling
thread. ``async_publisher`` publishes asynchronously, and ``futures`` are what it returns.
``discovery`` asks nsqlookupds for nsqds, ``stats`` counts.
"""
