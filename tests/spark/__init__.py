"""Tests of the Spark data source; those that need a JVM are marked ``spark``."""
