"""An object store with S3's protocol, of moto, in this process."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import HTTPServer
from typing import Any

import pytest


@contextlib.contextmanager
def object_store() -> Iterator[str]:
    """Run the server, one request at a time, because moto's conditional put is not atomic."""
    pytest.importorskip("obstore")
    moto = pytest.importorskip("moto.moto_server.werkzeug_app")
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        """Logs no request."""

        def log(self, *arguments: Any) -> None:
            """Nothing."""

    app = moto.DomainDispatcherApplication(moto.create_backend_app)
    lock = threading.Lock()

    def one_by_one(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            return list(app(environ, start))

    server = make_server("127.0.0.1", 0, one_by_one, threaded=True, request_handler=Quiet)
    with serve(server) as endpoint:
        yield endpoint


@contextlib.contextmanager
def serve(server: HTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, name="object-store", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def s3_variables(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL_S3": endpoint, "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nowhere",
        "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}


@contextlib.contextmanager
def environment(endpoint: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        for name, value in s3_variables(endpoint).items():
            patch.setenv(name, value)
        yield


def make_bucket(name: str) -> None:
    import boto3

    boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"]).create_bucket(Bucket=name)
