"""Tests of the ready-made pipelines."""
