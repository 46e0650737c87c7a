"""Tests of the ingest."""
