"""Checks of a cluster from the position of a client. They change nothing."""
