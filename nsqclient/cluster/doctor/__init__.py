"""Checks of a cluster from the position of a client: problems, and what to do.

``diagnosis`` decides what to check, ``checks`` looks at one server, and ``findings`` are the
results. Nothing is published, subscribed to or changed. ``nsqclient doctor``
and the admin page run it.
"""
