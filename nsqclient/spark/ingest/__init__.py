"""The ingest: from nsqds into a log, by a ``BulkConsumer``.

``writer`` collects messages of all connections, makes segments of them and finishes durable
messages; ``known_ids`` knows which may come again; ``ingest`` is all of this.
Never imports pyspark.
"""
