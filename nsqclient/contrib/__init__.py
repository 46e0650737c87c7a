"""nsqclient at home in other packages: Django, Flask, Prometheus, statsd.

``django`` and ``flask`` publish from request handlers and run consumers as commands; ``settings``,
``process_producer`` and ``running`` are what they share. ``prometheus`` and ``statsd`` show the
counters of ``samples``. Each outside package is imported in its own module or folder only, and
comes with the extra of its name.
"""
