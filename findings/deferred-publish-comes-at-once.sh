#!/bin/sh
# Guess:   DPUB delays a message whether nsqd keeps it in memory or on disk.
# Happens: A message that passes the disk queue loses its delay. With --mem-queue-size=0 nearly all
#          of a burst are delivered at once.
# Version: nsqd 1.3.0
# Source:  github.com/nsqio/nsq v1.3.0, nsqd/topic.go (put: "they lose deferred timer in backend
#          queue")
# Seen:    2026-11-28
# Needs:   python3, and go or NSQ_BIN (a folder with nsqd 1.3.0)
set -u
work=$(mktemp -d) || exit 77
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
skip() { echo "NOT RUN: $1"; exit 77; }
command -v python3 >/dev/null || skip "no python3"
nsqd=${NSQ_BIN:+$NSQ_BIN/nsqd}
if [ -z "$nsqd" ]; then
    command -v go >/dev/null || skip "no go, and NSQ_BIN does not name a folder with nsqd 1.3.0"
    printf '%s\n' 'module finding' 'go 1.17' 'require github.com/nsqio/nsq v1.3.0' \
        'replace github.com/judwhite/go-svc => github.com/mreiferson/go-svc v1.2.2-0.20210815184239-7a96e00010f6' >"$work/go.mod"
    printf '%s\n' 'package finding' 'import _ "github.com/nsqio/nsq/nsqd"' >"$work/finding.go"
    (cd "$work" && GOPATH="$work/go" GOCACHE="$work/cache" GOFLAGS="-modcacherw -mod=mod" \
        go build -buildvcs=false -o nsqd github.com/nsqio/nsq/apps/nsqd) >"$work/build.log" 2>&1 ||
        { tail -n 5 "$work/build.log"; skip "nsqd could not be built"; }
    nsqd=$work/nsqd
fi
"$nsqd" --version | grep 'v1.3.0 ' || skip "this is not nsqd 1.3.0"
python3 - "$nsqd" "$work" <<'EOF'
import json, re, signal, socket, struct, subprocess, sys, time, urllib.request
from pathlib import Path

NSQD, WORK = sys.argv[1], Path(sys.argv[2])


class Nsqd:
    def __init__(self, *flags):
        data, log = WORK / "data", WORK / "nsqd.log"
        data.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [NSQD, f"--data-path={data}", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0",
             *flags], stderr=log.open("wb"))
        for _ in range(200):
            found = dict(re.findall(r"(TCP|HTTP): listening on (127\S+)", log.read_text()))
            if len(found) == 2:
                break
            time.sleep(0.05)
        self.http = found["HTTP"]
        host, port = found["TCP"].split(":")
        self.tcp = (host, int(port))

    def request(self, path, body=None):
        with urllib.request.urlopen(f"http://{self.http}{path}", data=body, timeout=20) as answer:
            return answer.read()

    def topic(self):
        return json.loads(self.request("/stats?format=json"))["topics"][0]

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait()


class Client:
    def __init__(self, nsqd):
        self.socket = socket.create_connection(nsqd.tcp, timeout=20)
        self.data = b""
        self.socket.sendall(b"  V2")

    def send(self, line, body=None):
        self.socket.sendall(line + b"\n" + (b"" if body is None else struct.pack(">i", len(body)) + body))

    def read(self):
        """Return kind (0 response, 1 error, 2 message) and data of a frame."""
        while len(self.data) < 4 or len(self.data) < 4 + int.from_bytes(self.data[:4], "big"):
            self.data += self.socket.recv(65536) or sys.exit("nsqd has closed the connection")
        end = 4 + int.from_bytes(self.data[:4], "big")
        frame, self.data = self.data[4:end], self.data[end:]
        return frame[3], frame[4:]

    def ask(self, line, body=None):
        self.send(line, body)
        return self.read()

    def messages(self, seconds):
        """Finish the messages that come until none has come for so long; return (id, body) pairs."""
        self.socket.settimeout(seconds)
        found = []
        try:
            while True:
                kind, data = self.read()
                if kind == 2:
                    found.append((data[10:26], data[26:]))
                    self.send(b"FIN " + data[10:26])
        except TimeoutError:
            return found


nsqd = Nsqd("--mem-queue-size=0")
try:
    consumer = Client(nsqd)
    consumer.ask(b"SUB t c")
    consumer.send(b"RDY 2500")
    producer = Client(nsqd)
    for _ in range(1000):
        producer.send(b"DPUB t 60000", b"in a minute")
    for _ in range(1000):
        assert producer.read() == (0, b"OK")
    early = len(consumer.messages(3))
    print(f"of 1,000 messages with a delay of 60 s, {early} were delivered within seconds")
finally:
    nsqd.end()
sys.exit(early < 500)
EOF
