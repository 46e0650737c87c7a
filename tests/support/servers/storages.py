"""Storages of each kind: a folder, and servers of objects with an environment of their own.

``tools/fetch.sh`` fetches ``MINIO`` and ``AZURITE``; without them their tests are skipped.
"""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from tests.support.leaks import FOREIGN_PORTS
from tests.support.processes import CHECKOUT
from tests.support.servers.fake_gcs import FakeGcs
from tests.support.servers.object_store import make_bucket, s3_variables, serve
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_until

MINIO = CHECKOUT / ".cache" / "minio" / "minio"
AZURITE = CHECKOUT / ".cache" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
#: Of every emulator of Azure.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_buckets = itertools.count()
_PREFIXES = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")


class StorageServer:
    """A server of objects.

    Args:
        variables: environment variables for the client.
        create: creates a bucket of this name.
    """

    def __init__(
        self, scheme: str, variables: dict[str, str], create: Callable[[str], None]
    ) -> None:
        self._scheme = scheme
        self._variables = variables
        self._create = create

    @contextlib.contextmanager
    def new_url(self) -> Iterator[str]:
        """Give the URL of a prefix in a new bucket, and set the environment for it."""
        with variables_set(self._variables):
            bucket = f"bucket-{next(_buckets)}"
            self._create(bucket)
            yield f"{self._scheme}://{bucket}/some/prefix"


@contextlib.contextmanager
def variables_set(variables: dict[str, str]) -> Iterator[None]:
    """Set these variables, and no others that clients of storages read."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_PREFIXES):
                patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def moto(endpoint: str) -> StorageServer:
    """S3 by ``object_store()``. It asks for no signature, whose client costs 0.1 s."""
    return StorageServer("s3", s3_variables(endpoint), lambda name: requests.put(
        f"{endpoint}/{name}", timeout=30).raise_for_status())


@contextlib.contextmanager
def gcs(folder: Path) -> Iterator[StorageServer]:
    """Google Cloud Storage by a fake of our own, in this process."""
    server = FakeGcs()
    (folder / "key.json").write_text(server.key_file)
    with serve(server):
        yield StorageServer("gs", {"GOOGLE_SERVICE_ACCOUNT": str(folder / "key.json")},
                            lambda name: server.buckets.update({name: {}}))


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[StorageServer]:
    """S3 by MinIO."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    variables = {**s3_variables(endpoint), "AWS_SECRET_ACCESS_KEY": "secretsecret"}
    command = [_needed(MINIO), "server", "--quiet", "--address", endpoint[7:], str(folder)]
    with _running(command, endpoint, MINIO_ROOT_USER="key", MINIO_ROOT_PASSWORD="secretsecret",
                  HOME=str(folder)):
        yield StorageServer("s3", variables, make_bucket)


def azurite(
    is_emulator: bool
) -> Callable[[Path], contextlib.AbstractContextManager[StorageServer]]:
    """Azure by Azurite, known to the client as an emulator, or as an account with a key."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[StorageServer]:
        port = free_port()
        endpoint = f"http://127.0.0.1:{port}"
        if is_emulator:
            variables = {
                "AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": endpoint}
        else:
            variables = {
                "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY,
                "AZURE_STORAGE_ENDPOINT": f"{endpoint}/{ACCOUNT}"}
        command = [_needed(AZURITE), "--blobPort", str(port), "--inMemoryPersistence",
                   "--skipApiVersionCheck", "--disableTelemetry"]
        with _running(command, endpoint):
            yield StorageServer("az", variables, lambda name: make_container(endpoint, name))

    return start


def make_container(endpoint: str, name: str) -> None:
    """Create a container of Azurite."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = ["PUT", *[""] * 11, *(f"{key}:{value}" for key, value in headers.items()),
              f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"]
    digest = hmac.digest(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    requests.put(f"{endpoint}/{ACCOUNT}/{name}?restype=container", headers=headers,
                 timeout=30).raise_for_status()


def _needed(program: Path) -> str:
    if not os.access(program, os.X_OK) or (program is AZURITE and shutil.which("node") is None):
        pytest.skip(f"no {program.name}: 'tools/fetch.sh' fetches it")
    return str(program)


@contextlib.contextmanager
def _running(command: list[str], endpoint: str, **environment: str) -> Iterator[None]:
    FOREIGN_PORTS.add(int(endpoint.rpartition(":")[2]))  # the client keeps its connections
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, **environment})

    def answers() -> bool:
        assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
        try:
            requests.get(endpoint, timeout=5)
        except requests.RequestException:
            return False
        return True

    try:
        wait_until(answers, 60, f"{command[0]} answers")
        yield
    finally:
        process.terminate()
        process.wait(30)


#: kind -> starts its server in a folder.
SERVERS = {"gs": gcs, "minio": minio, "azurite": azurite(True), "azurite-key": azurite(False)}
