"""Tests of the Spark data source. The marker ``spark`` means that a test needs a JVM."""
