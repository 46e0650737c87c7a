"""Shared storage: objects that are created once and never changed.

``store`` says what is needed of a storage, opens it by its URL and probes it; ``local`` is a
folder, ``object_store`` a bucket. Needs obstore for that alone, never pyspark or pyarrow.
"""
