"""``ObjectStore``: a bucket of S3, GCS, Azure, or a server with S3's protocol, through obstore.

Credentials, region and endpoint come from the environment, or from the role of the machine or pod.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import from_url

from nsqclient.errors import ConfigError
from nsqclient.spark.errors import ObjectNotFoundError, StorageError
from nsqclient.spark.storage import Store, StoredObject, is_ours

#: Time limits of a connection, of a request with its response, and of all attempts of a request.
_OPTIONS = {"connect_timeout": "3s", "timeout": "8s", "allow_http": "true"}
_RETRIES: dict[str, Any] = {"max_retries": 10, "retry_timeout": datetime.timedelta(seconds=6)}
#: S3's code for a create during another create of the same key, after which a retry is due.
_CONFLICT = "ConditionalRequestConflict"
_TRIES = 10
#: Concurrent delete requests.
_DELETES = 16
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken",
           "InvalidToken", "AllAccessDisabled", "Forbidden", "AuthenticationFailed",
           "AuthorizationFailure")
#: Where credentials come from, by scheme.
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to the path of a key file, or give the machine a"
          " service account",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or"
          " AZURE_STORAGE_SAS_TOKEN, or give the machine a managed identity",
}


class ObjectStore(Store):
    """Objects of a bucket under a prefix. ``create`` is a conditional PUT."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._store: Any = from_url(url, client_options=_OPTIONS, retry_config=_RETRIES)
        except Exception as exc:  # obstore's errors and Python's do not share a base class
            scheme = url.partition(":")[0]
            raise ConfigError(f"storage {url}: {_text(exc)}: {_CREDENTIALS[scheme]}") from exc

    @property
    def url(self) -> str:
        return self._url

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as exc:
            if _code(exc) in _NO_BUCKET:
                raise StorageError(self.url, _reason(exc, self.url)) from exc
            raise ObjectNotFoundError(self.url, key) from exc
        except StorageError:
            raise
        except Exception as exc:  # obstore's errors and Python's do not share a base class
            raise StorageError(self.url, _reason(exc, self.url)) from exc

    def create(self, key: str, data: Any) -> bool:
        body = bytes(data)
        with self._explained(key):
            for left in reversed(range(_TRIES)):
                try:
                    obstore.put(self._store, key, body, mode="create", use_multipart=False)
                    return True
                except AlreadyExistsError as exc:
                    if _code(exc) != _CONFLICT or not left:
                        break
                except Exception as exc:  # _explained converts it
                    if _code(exc) != _CONFLICT or not left:
                        raise
        return is_ours(self, key, body)  # obstore repeats a PUT whose answer was lost

    def read(self, key: str) -> bytes:
        with self._explained(key):
            return bytes(obstore.get(self._store, key).bytes())

    def list_objects(self, folder: str, after: str = "") -> list[StoredObject]:
        """Sends a request for each 1000 objects after ``after``.

        If the server ignores the start key, as Azurite does, all objects of the folder are listed.
        """
        with self._explained(folder):
            return sorted(
                StoredObject(item["path"], item["size"], item["last_modified"].timestamp())
                for chunk in obstore.list(
                    self._store, prefix=folder or None, offset=after or None, chunk_size=1000)
                for item in chunk if item["path"] > after)

    def list_folders(self, folder: str) -> list[str]:
        with self._explained(folder):
            found = obstore.list_with_delimiter(self._store, prefix=folder or None)
            return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    def delete(self, keys: Iterable[str]) -> None:
        """Sends a request for each object.

        Azure and GCS answer 404 to the deletion of a missing object. If obstore deletes a list of
        keys, it stops at this error and leaves other objects.
        """
        with ThreadPoolExecutor(_DELETES, "nsq-storage") as pool:
            list(pool.map(self._delete, keys))

    def _delete(self, key: str) -> None:
        with contextlib.suppress(ObjectNotFoundError), self._explained(key):
            obstore.delete(self._store, key)

    def missing_space(self, size: int) -> int:
        return 0


def _code(error: Exception) -> str:
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return "" if found is None else found[1]


def _reason(error: Exception, url: str) -> str:
    scheme, _, bucket, *_ = url.split("/")
    code, text = _code(error), _text(error)
    if code in _NO_BUCKET:
        return f"there is no bucket {bucket}: create it, or correct the URL"
    if code in _DENIED or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return (f"access was denied ({code or 'no reason is given'}): check the credentials, and"
                " that they allow to get, put, list and delete objects there")
    if "169.254.169.254" in text:  # the address that gives the credentials of a role
        return f"there are no credentials: {_CREDENTIALS[scheme.rstrip(':')]}"
    return f"the request failed: {text}"


def _text(error: Exception) -> str:
    return " ".join(str(error).partition("\n\nDebug source")[0].split()) or type(error).__name__
