"""Tests on a real Spark: one session for all of them, marked ``spark``."""
