"""nsqclient in other packages: Django, Flask, Prometheus, statsd.

``django`` and ``flask`` publish from request handlers and run consumers as commands; they share
``settings`` and ``consumer_group``, and Flask's command restarts with ``reloading``. ``prometheus``
and ``statsd`` export the counters of ``metrics_registry``. Each outside package is imported in its
own module or folder only, and comes with the extra of its name.
"""
