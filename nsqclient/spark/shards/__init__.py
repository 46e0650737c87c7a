"""Shards: the log of one topic and channel at one nsqd, on a storage.

``names`` are the keys of its objects; ``shard_log`` is the writer's side of a shard; ``owners``
receive from one nsqd each into it, and ``membership`` divides the nsqds among processes;
``log_reader`` is the side of Spark's driver, ``admission`` shares a batch, and ``reader_claim``
keeps it alone. Needs pyarrow, never pyspark.

Every call that uses the storage raises StorageError if the storage fails. The docstrings name only
other errors.
"""
