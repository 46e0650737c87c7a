"""A fake of Google Cloud Storage's XML API, which fake-gcs-server refuses to obstore."""

import datetime
import email.utils
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

#: Objects of one listing response.
_PAGE = 1000


class FakeGcs(ThreadingHTTPServer):
    """The server. Buckets must be created with ``buckets[name] = {}``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.buckets: dict[str, dict[str, tuple[bytes, float]]] = {}
        self.lock = threading.Lock()

    @property
    def key_file(self) -> str:
        return json.dumps({
            "gcs_base_url": f"http://127.0.0.1:{self.server_port}", "disable_oauth": True,
            "client_email": "", "private_key": "", "private_key_id": ""})


class _Handler(BaseHTTPRequestHandler):
    server: FakeGcs

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path)[1:].partition("/")
        with self.server.lock:
            objects = self.server.buckets.get(bucket)
            if objects is None:
                self._refuse(404, "NoSuchBucket")
            elif not key:
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self._list(objects, query)
            elif self.command == "PUT":
                if self.headers.get("x-goog-if-generation-match") == "0" and key in objects:
                    self._refuse(412, "PreconditionFailed")
                else:
                    objects[key] = body, time.time()
                    self._answer(200, b"")
            elif key not in objects:
                self._refuse(404, "NoSuchKey")
            elif self.command == "DELETE":
                del objects[key]
                self._answer(204, b"")
            else:
                self._answer(200, *objects[key])

    do_GET = do_PUT = do_DELETE = _handle

    def _list(self, objects: dict[str, tuple[bytes, float]], query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        found, folders, last = [], [], ""
        for key in sorted(objects):
            if not key.startswith(prefix) or key <= after:
                continue
            if len(found) == _PAGE:
                last = found[-1]
                break
            if delimiter and delimiter in key[len(prefix):]:
                folders.append(prefix + key[len(prefix):].partition(delimiter)[0] + delimiter)
            else:
                found.append(key)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key][0])}</Size>"
            f"<LastModified>{_iso(objects[key][1])}</LastModified><ETag>x</ETag></Contents>"
            for key in found)
        common = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
                         for one in dict.fromkeys(folders))
        more = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if last else ""
        self._answer(200, f"<ListBucketResult>{contents}{common}{more}</ListBucketResult>".encode())

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _answer(self, status: int, body: bytes, stored: float = 0.0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", email.utils.formatdate(stored, usegmt=True))
        self.end_headers()
        self.wfile.write(body)


def _iso(moment: float) -> str:
    return datetime.datetime.fromtimestamp(
        moment, datetime.timezone.utc).isoformat()
