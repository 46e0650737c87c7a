"""Shared storage: objects that are created once and never changed.

``store`` says what is needed of a storage, opens it by its URL and probes it; ``local`` is a
folder, ``s3`` an object store. Needs fsspec and s3fs for S3 alone, never pyspark or pyarrow.
"""
