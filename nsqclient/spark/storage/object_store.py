"""``ObjectStore``: a bucket of S3, GCS or Azure, or of a server that has S3's protocol, by obstore.

Credentials, region and endpoint come from the environment (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL_S3``, ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_...``), or from the
role of the machine or pod.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterable, Iterator
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import from_url

from nsqclient.spark.errors import ObjectNotFoundError, StorageError
from nsqclient.spark.storage.store import StoredObject, is_ours

#: Seconds for a connection, for a request with its answer, and for all tries of a request together:
#: a storage that is gone is noticed within these.
_OPTIONS = {"connect_timeout": "3s", "timeout": "8s", "allow_http": "true"}
_RETRIES: dict[str, Any] = {"max_retries": 10, "retry_timeout": datetime.timedelta(seconds=6)}
#: S3's code for a create while another create of that key is under way: to be tried again.
_CONFLICT = "ConditionalRequestConflict"
_TRIES = 10
_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken",
           "InvalidToken", "AllAccessDisabled", "Forbidden")


class ObjectStore:
    """Objects of a bucket, under a prefix. To create one is a conditional PUT."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._bucket = url.split("/")[2]
        self._store: Any = from_url(url, client_options=_OPTIONS, retry_config=_RETRIES)

    @property
    def url(self) -> str:
        """``s3://...``."""
        return self._url

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as exc:
            if _code(exc) == "NoSuchBucket":
                raise StorageError(self.url, _reason(exc, self._bucket)) from exc
            raise ObjectNotFoundError(self.url, key) from exc
        except StorageError:
            raise
        except Exception as exc:  # of obstore, and of Python: no common root
            raise StorageError(self.url, _reason(exc, self._bucket)) from exc

    def create(self, key: str, data: Any) -> bool:
        """See ``Store``."""
        body = bytes(data)
        with self._explained(key):
            for left in reversed(range(_TRIES)):
                try:
                    obstore.put(self._store, key, body, mode="create", use_multipart=False)
                    return True
                except AlreadyExistsError as exc:
                    if _code(exc) != _CONFLICT or not left:
                        break
                except Exception as exc:  # as in _explained, which has the rest
                    if _code(exc) != _CONFLICT or not left:
                        raise
        return is_ours(self, key, body)  # the library repeats a PUT whose answer was lost

    def read(self, key: str) -> bytes:
        """See ``Store``."""
        with self._explained(key):
            return bytes(obstore.get(self._store, key).bytes())

    def list_objects(self, folder: str, after: str = "") -> list[StoredObject]:
        """See ``Store``: one request for each 1000 objects behind ``after``."""
        with self._explained(folder):
            return sorted(
                StoredObject(item["path"], item["size"], item["last_modified"].timestamp())
                for chunk in obstore.list(
                    self._store, prefix=folder or None, offset=after or None, chunk_size=1000)
                for item in chunk)

    def list_folders(self, folder: str) -> list[str]:
        """See ``Store``: one request for each 1000 folders."""
        with self._explained(folder):
            found = obstore.list_with_delimiter(self._store, prefix=folder or None)
            return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    def delete(self, keys: Iterable[str]) -> None:
        """See ``Store``."""
        names = list(keys)
        with self._explained("objects"):
            if names:
                obstore.delete(self._store, names)

    def missing_space(self, size: int) -> int:
        """See ``Store``: an object store has no end."""
        return 0


def _code(error: Exception) -> str:
    """The code of the storage in the text of an error; empty: there is none."""
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return "" if found is None else found[1]


def _reason(error: Exception, bucket: str) -> str:
    code, text = _code(error), str(error).partition("\n\nDebug source")[0]
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket}: create it, or correct the URL"
    if code in _DENIED or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return (f"access was denied ({code or 'no reason is given'}): check the credentials, and"
                " that they allow to get, put, list and delete objects there")
    if "169.254.169.254" in text:  # where a role would be found
        return ("there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give"
                " the machine a role")
    return f"the request failed: {' '.join(text.split()) or type(error).__name__}"
