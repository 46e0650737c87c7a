"""nsqclient in other packages: Django, Flask, Prometheus, OpenTelemetry.

``django`` and ``flask`` publish from request handlers and run consumers as commands; they share
``settings`` and ``consumer_group``, and Flask's command restarts with ``reloading``. ``prometheus``
exports counters, ``opentelemetry`` traces. Each outside package is imported in its own module or
folder only, and comes with the extra of its name.
"""
