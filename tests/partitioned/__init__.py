"""Consumers and producers on the embedded partitioned cluster."""
