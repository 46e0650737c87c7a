"""Reads the manual, and runs its code."""
