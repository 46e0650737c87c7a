"""A proxy before an object store that can be killed, fails requests (503), and answers late.

Arguments: its own port, the store's. Its faults are the lines of stdin: a number of requests in a
thousand that fail, and seconds for each answer: ``300 0``, ``0 0.5``.
"""

import http.client
import random
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Requests in a thousand that fail, and seconds for each.
FAULTS = [0, 0.0]
_PAUSE = threading.Event()


class Front(BaseHTTPRequestHandler):
    """Forwards requests, or refuses them."""

    protocol_version = "HTTP/1.1"

    def _handle(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if FAULTS[1]:
            _PAUSE.wait(FAULTS[1])
        if random.randrange(1000) < FAULTS[0]:
            self._answer(503, [("Content-Type", "application/xml")],
                         b"<Error><Code>SlowDown</Code><Message>Slow down</Message></Error>")
            return
        conn = http.client.HTTPConnection("127.0.0.1", int(sys.argv[2]), timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in ("expect", "connection")}
            conn.request(self.command, self.path, body, headers)
            answer = conn.getresponse()
            self._answer(answer.status, answer.getheaders(), answer.read())
        except OSError:
            self.close_connection = True  # the store is away: so is its front
        finally:
            conn.close()

    def _answer(self, status, headers, body):
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # of HEAD, too
            elif name.lower() not in ("connection", "transfer-encoding", "keep-alive"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle


def main():
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Front)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        failing, delay = line.split()
        FAULTS[:] = [int(failing), float(delay)]


if __name__ == "__main__":
    main()
