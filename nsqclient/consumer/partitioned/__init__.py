"""Consuming from partitioned NSQ: leaders of partitions, ordered handling, positions."""
