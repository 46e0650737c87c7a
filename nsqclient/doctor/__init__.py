"""Checks of a cluster from where a client stands: what is wrong, and what to do.

``diagnosis`` decides what to check, ``lookupd`` and ``nsqd`` check one server each, and
``findings`` are the results. Nothing is published, subscribed to or changed. ``nsqclient doctor``
and the admin page run it.
"""
