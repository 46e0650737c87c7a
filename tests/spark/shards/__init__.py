"""The log of a shard."""
