"""Threads, sockets and time. Nothing here depends on NSQ."""
