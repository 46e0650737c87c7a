"""Shared storage."""
