"""Checks of a cluster from the position of a client, for ``nsqclient doctor`` and the admin page.

``diagnosis`` chooses the checks, ``checks`` has them, and ``findings`` are the results. Nothing is
published, subscribed to or changed.
"""
