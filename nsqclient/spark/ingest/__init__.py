"""The ingest: from nsqd into the spool, on the client's own connections, discovery and flow.

``subscription`` counts the messages of one connection; ``message_buffer`` collects messages of all
connections; ``writer`` makes segments of them and finishes durable messages; ``ingest`` is all of
this in one process, ``worker_processes`` and ``child`` are several processes, connected by
``pipes``. ``draining`` decides when a drain has everything that was there, ``channel_depth`` asks
the nsqds how much that is. ``receiver`` is the ingest with its spool, as Spark's readers use it.
Never imports pyspark.
"""
