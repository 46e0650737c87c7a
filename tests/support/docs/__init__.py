"""Reads the manual, and runs what it shows."""
