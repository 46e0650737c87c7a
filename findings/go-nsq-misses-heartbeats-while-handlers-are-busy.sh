#!/bin/sh
# Guess:   go-nsq answers heartbeats while a handler runs, however long it takes.
# Happens: Only as long as no further message arrives. The reader hands it over through a channel
#          without a buffer, and reads nothing, heartbeats included, until a handler is free. nsqd
#          closes the connection after two intervals.
# Version: go-nsq 1.1.0, nsqd 1.3.0
# Source:  github.com/nsqio/go-nsq v1.1.0, consumer.go (onConnMessage: r.incomingMessages <- msg),
#          conn.go (readLoop)
# Seen:    2026-11-28
# Needs:   python3, go; NSQ_BIN (a folder with nsqd 1.3.0) spares a build
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
command -v go >/dev/null || skip "no go"
cat >"$work/program.go" <<'EOF'
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/nsqio/go-nsq"
)

// Consume with a handler that takes 6 s; print each lost connection.
func main() {
	config := nsq.NewConfig()
	config.HeartbeatInterval = time.Second
	config.MaxInFlight = len(os.Args) - 2
	consumer, _ := nsq.NewConsumer("t", fmt.Sprintf("c%d", config.MaxInFlight), config)
	consumer.SetLoggerLevel(nsq.LogLevelMax)
	consumer.AddHandler(nsq.HandlerFunc(func(*nsq.Message) error {
		time.Sleep(6 * time.Second)
		return nil
	}))
	if err := consumer.ConnectToNSQD(os.Args[1]); err != nil {
		panic(err)
	}
	time.Sleep(5 * time.Second)
	fmt.Println(consumer.Stats().Connections)
}
EOF
mkdir "$work/program" && mv "$work/program.go" "$work/program/main.go"
printf '%s\n' 'module finding' 'go 1.17' 'require github.com/nsqio/go-nsq v1.1.0' >"$work/program/go.mod"
(cd "$work/program" && GOPATH="$work/go" GOCACHE="$work/cache" GOFLAGS="-modcacherw -mod=mod" \
    go build -buildvcs=false -o consume .) >"$work/build.log" 2>&1 ||
    { tail -n 5 "$work/build.log"; skip "a program with go-nsq could not be built"; }
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


nsqd = Nsqd()
try:
    left = {}
    for number in (1, 2):
        nsqd.request("/topic/create?topic=t", b"")
        nsqd.request(f"/channel/create?topic=t&channel=c{number}", b"")
        nsqd.request("/mpub?topic=t", b"a\nb")
        words = [WORK / "program/consume", "%s:%d" % nsqd.tcp, *["x"] * number]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        log = (WORK / "nsqd.log").read_text()
        left[number] = "closed by nsqd" if "i/o timeout" in log else "open"
        print(f"a handler that takes 6 s, heartbeats each second, max_in_flight {number}:"
              f" connection after 5 s: {left[number]}")
        nsqd.request("/topic/delete?topic=t", b"")
finally:
    nsqd.end()
sys.exit(left != {1: "open", 2: "closed by nsqd"})
EOF
