"""``S3Store``: a bucket of S3, or of a server that has S3's protocol, through s3fs.

Credentials, region and endpoint come from where the AWS libraries look for them: the environment
(``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL_S3``), profiles, roles; and from fsspec's configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import fsspec.asyn
import s3fs

from nsqclient.spark.errors import ObjectNotFoundError, StorageError
from nsqclient.spark.storage.store import StoredObject, one_line

#: Seconds for a connection, and for an answer; s3fs and botocore try again five times each.
_CONNECT_TIMEOUT, _READ_TIMEOUT = 5, 30
#: S3's code for a create while another create of that key is under way: to be tried again.
_CONFLICT = "ConditionalRequestConflict"
_TRIES = 10
#: Objects that one request deletes at most.
_DELETED_AT_ONCE = 1000

_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken",
           "InvalidToken", "AllAccessDisabled", "403", "Forbidden")


class S3Store:
    """Objects of a bucket, under a prefix. To create one is a PUT with ``If-None-Match: *``.

    Args:
        place: ``bucket`` or ``bucket/prefix``.
    """

    def __init__(self, place: str) -> None:
        self._bucket, _, prefix = place.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._place = place
        self._fs: Any = s3fs.S3FileSystem(
            anon=False, use_listings_cache=False, skip_instance_cache=True,
            config_kwargs={"connect_timeout": _CONNECT_TIMEOUT, "read_timeout": _READ_TIMEOUT})

    @property
    def url(self) -> str:
        """``s3://...``."""
        return f"s3://{self._place}"

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except Exception as exc:  # of botocore, aiohttp, s3fs and the system: no common root
            if _code(exc) in ("NoSuchKey", "404"):
                raise ObjectNotFoundError(self.url, key) from exc
            raise StorageError(self.url, _reason(exc, self._bucket)) from exc

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._fs.call_s3(method, Bucket=self._bucket, **arguments)

    def create(self, key: str, data: Any) -> bool:
        """See ``Store``."""
        body = bytes(data)
        with self._explained(key):
            for left in reversed(range(_TRIES)):
                try:
                    self._call("put_object", Key=self._prefix + key, Body=body, IfNoneMatch="*")
                    return True
                except Exception as exc:  # as in _explained, which has the rest
                    if _code(exc) == "PreconditionFailed":
                        break
                    if _code(exc) != _CONFLICT or not left:
                        raise
        # A PUT whose answer was lost is repeated by the libraries, and then refused.
        try:
            return self.read(key) == body
        except ObjectNotFoundError:
            return False  # deleted since

    def read(self, key: str) -> bytes:
        """See ``Store``."""
        with self._explained(key):
            # Not cat_file(), which asks twice more where there is no such object.
            body = self._call("get_object", Key=self._prefix + key)["Body"]

            async def read() -> bytes:
                async with body as stream:
                    data: bytes = await stream.read()
                    return data

            found: bytes = fsspec.asyn.sync(self._fs.loop, read)
            return found

    def list_objects(self, folder: str, after: str = "") -> list[StoredObject]:
        """See ``Store``: one request for each 1000 objects behind ``after``."""
        arguments = {"Prefix": self._prefix + (f"{folder}/" if folder else "")}
        if after:
            arguments["StartAfter"] = self._prefix + after
        with self._explained(folder):
            return [
                StoredObject(item["Key"][len(self._prefix):], item["Size"],
                             item["LastModified"].timestamp())
                for answer in self._list(arguments) for item in answer.get("Contents", ())]

    def list_folders(self, folder: str) -> list[str]:
        """See ``Store``: one request for each 1000 folders."""
        prefix = self._prefix + (f"{folder}/" if folder else "")
        with self._explained(folder):
            return [
                item["Prefix"][len(prefix):-1]
                for answer in self._list({"Prefix": prefix, "Delimiter": "/"})
                for item in answer.get("CommonPrefixes", ())]

    def _list(self, arguments: dict[str, str]) -> Iterator[Any]:
        """Give each answer of a listing."""
        while True:
            answer = self._call("list_objects_v2", **arguments)
            yield answer
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def delete(self, keys: Iterable[str]) -> None:
        """See ``Store``."""
        names = [{"Key": self._prefix + key} for key in keys]
        with self._explained("objects"):
            for first in range(0, len(names), _DELETED_AT_ONCE):
                some = names[first:first + _DELETED_AT_ONCE]
                answer = self._call("delete_objects", Delete={"Objects": some, "Quiet": True})
                for failed in answer.get("Errors", ()):
                    raise StorageError(
                        self.url, f"{failed['Key']} cannot be deleted: {failed['Code']}")

    def missing_space(self, size: int) -> int:
        """See ``Store``: an object store has no end."""
        return 0

    def close(self) -> None:
        """See ``Store``: s3fs closes its session with its last reference."""
        self._fs = None


def _code(error: BaseException) -> str:
    """The code of S3 behind an error, which s3fs turns into one of Python's."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def _reason(error: Exception, bucket: str) -> str:
    code, name = _code(error), type(error).__name__
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket}: create it, or correct the URL"
    if code in _DENIED:
        return (f"access was denied ({code}): check the credentials, and that they allow to get,"
                " put, list and delete objects there")
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return ("there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a"
                " profile, or a role")
    return f"the request failed: {code or name}: {one_line(error)}"
