"""Shards: logs on a storage, one for each nsqd or partition of a topic and channel.

``names`` has the keys of the objects. ``shard_log`` writes the log of one shard, ``owners`` receive
messages into it, and ``membership`` divides the shards among processes. ``log_reader`` is what
Spark's driver reads with, ``admission`` plans its batches, and ``reader_claim`` keeps a second
query away. Needs pyarrow, never pyspark.

Every call that uses the storage raises StorageError if the storage fails. The docstrings name only
other errors.
"""
