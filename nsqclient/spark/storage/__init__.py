"""Shared storage: objects that are created once and never changed.

``open_store`` opens one by its URL; ``store`` is its interface, and the probe;
``local`` is a folder, ``object_store`` a bucket. Needs obstore for that alone, never pyspark or
pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqclient.errors import ConfigError
from nsqclient.spark.options import check_storage

if TYPE_CHECKING:
    from nsqclient.spark.storage.store import Store


def open_store(url: str) -> Store:
    """Open a storage by its URL. Nothing is asked of it yet. Raises ConfigError."""
    scheme, place = check_storage(url)
    if scheme == "file":
        from nsqclient.spark.storage.local import LocalStore

        return LocalStore(place)
    try:
        from nsqclient.spark.storage.object_store import ObjectStore
    except ImportError as exc:
        raise ConfigError(
            f"storage {url}: obstore is needed: pip install 'nsqclient[spark-storage]' ({exc})"
        ) from exc
    return ObjectStore(f"{scheme}://{place}")
