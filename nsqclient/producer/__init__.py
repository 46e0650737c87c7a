"""Publishes: nodes, synchronous and asynchronous publishes, outcomes.

``producer`` has the public class, ``core`` makes its parts. ``publisher`` sends a publish in the
calling thread; ``outcome`` decides how long it waits, and what follows from a failure.
``async_publisher`` has queues, workers that call the publisher, and ``futures``. ``nodes`` are the
nsqds, dialed in the background; ``pool`` has the connections to one of them. ``discovery`` asks
nsqlookupds for nsqds, ``stats`` counts.
"""
