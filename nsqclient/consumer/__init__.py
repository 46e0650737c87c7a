"""Consumes a channel: connections, RDY and backoff, the handler, the shutdown.

``core`` creates the parts and shows how they depend on each other.
"""
