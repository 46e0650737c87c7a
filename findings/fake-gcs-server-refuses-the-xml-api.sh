#!/bin/sh
# Guess:   fake-gcs-server takes what a client of Google Cloud Storage sends, so a store that works
#          on one works on the other.
# Happens: obstore puts objects by the XML API, which the real service has. fake-gcs-server answers
#          400 (invalid uploadType); it stores objects of the JSON API only.
# Version: fake-gcs-server 1.56.1, obstore 0.12.1
# Source:  github.com/fsouza/fake-gcs-server, fakestorage/upload.go (insertObject)
# Seen:    2026-11-28
# Needs:   python3.11 or newer with venv, pip, go
set -u
work=$(mktemp -d) || exit 77
server=
trap '[ -z "$server" ] || { kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; }; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
skip() { echo "NOT RUN: $1"; exit 77; }
command -v go >/dev/null || skip "no go"
python3 -m venv "$work/venv" 2>/dev/null || skip "no python3 with venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check -q install obstore==0.12.1 >"$work/log" 2>&1 ||
    { tail -n 3 "$work/log"; skip "pip could not install obstore 0.12.1"; }
printf '%s\n' 'module finding' 'go 1.25' 'require github.com/fsouza/fake-gcs-server v1.56.1' >"$work/go.mod"
printf '%s\n' 'package finding' 'import _ "github.com/fsouza/fake-gcs-server/fakestorage"' >"$work/finding.go"
(cd "$work" && GOPATH="$work/go" GOCACHE="$work/cache" GOFLAGS="-modcacherw -mod=mod" \
    go build -buildvcs=false -o server github.com/fsouza/fake-gcs-server) >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log"; skip "fake-gcs-server could not be built"; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$work/server" -scheme http -host 127.0.0.1 -port "$port" \
    -public-host "127.0.0.1:$port" -backend memory >"$work/log" 2>&1 &
server=$!
"$work/venv/bin/python" - "$port" <<'EOF'
import json, sys, time, urllib.error, urllib.request
from importlib.metadata import version
import obstore
from obstore.store import GCSStore

url = f"http://127.0.0.1:{sys.argv[1]}"

def post(path, data, kind):
    request = urllib.request.Request(url + path, data, {"Content-Type": kind})
    return urllib.request.urlopen(request, timeout=20).status

for _ in range(60):
    try:
        post("/storage/v1/b", b'{"name": "finding"}', "application/json")
        break
    except urllib.error.URLError:
        time.sleep(0.5)
as_json = post("/upload/storage/v1/b/finding/o?uploadType=media&name=a", b"x", "text/plain")
account = json.dumps({"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "",
                      "private_key_id": ""})
store = GCSStore("finding", service_account_key=account, client_options={"allow_http": True})
try:
    obstore.put(store, "b", b"x")
    said = "stored"
except Exception as error:
    said = str(error)
print(f"obstore {version('obstore')}: JSON API: {as_json}; XML API: {said[:300]}")
sys.exit(as_json != 200 or "400" not in said)
EOF
