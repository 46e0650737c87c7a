"""The ingest: from nsqd into the spool, on the client's own connections, discovery and flow.

``subscription`` counts one connection's messages; ``gathering`` collects what readers bring;
``writer`` makes segments of it and finishes what is durable; ``ingest`` is all of it in one
process, ``children`` and ``child`` are several, which talk through ``pipes``. ``draining`` decides
when everything that was there has come, ``lag`` asks nsqds how much that is. ``receiver`` is the
ingest with its spool, as Spark's readers use it. Never imports pyspark.
"""
