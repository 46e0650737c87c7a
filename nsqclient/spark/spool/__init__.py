"""The spool: numbered, immutable Arrow segments in a folder, the write-ahead log of the source.

``names`` are the files' names; ``selection`` and ``known_ids`` decide, and touch no file;
``segment`` is a segment's content; ``folder`` is the files; ``spool`` puts them together. Needs
pyarrow (``segment`` alone), never pyspark.
"""
