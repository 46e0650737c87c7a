"""Tests of the spool."""
