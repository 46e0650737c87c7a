"""Servers that tests start: real, embedded, scripted."""
