#!/bin/sh
# Guess:   a blob whose PUT was answered with 201 outlives a SIGKILL of Azurite, which was given a
#          folder with --location.
# Happens: blobs of the last seconds are gone after the restart. The data are in the folder; the
#          metadata, in a database in memory, are saved every few seconds only.
# Version: Azurite 3.35.0
# Source:  github.com/Azure/Azurite, src/blob/persistence/LokiBlobMetadataStore.ts (autosave)
# Seen:    2026-11-28
# Needs:   npm, node, python3, the npm registry
for tool in npm node python3; do
    command -v "$tool" >/dev/null || { echo "NOT RUN: needs $tool"; exit 77; }
done
folder=$(mktemp -d) || exit 1
trap 'kill "$pid" 2>/dev/null; rm -rf "$folder"' EXIT
npm install --prefix "$folder/azurite" --silent --no-audit --no-fund azurite@3.35.0 >/dev/null 2>&1 ||
    { echo "NOT RUN: npm cannot install azurite"; exit 77; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

start() {
    node "$folder/azurite/node_modules/.bin/azurite-blob" --blobPort "$port" --location "$folder/data" \
        --silent --disableTelemetry >/dev/null 2>&1 &
    pid=$!
    python3 - "$port" <<'END'
import socket, sys, time
for _ in range(300):
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()
        break
    except OSError:
        time.sleep(0.1)
END
}

cat >"$folder/blob.py" <<'END'
"""Sends one request, signed with the key of the emulator; prints the status."""
import base64, email.utils, hashlib, hmac, http.client, sys

port, method, path, query = int(sys.argv[1]), *sys.argv[2:5]
account = "devstoreaccount1"
key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
body = b"x" if method == "PUT" and not query else b""
if body:
    headers = {"x-ms-blob-type": "BlockBlob", **headers}
lines = [method, "", "", str(len(body) or ""), *[""] * 8]
lines += [f"{name}:{value}" for name, value in headers.items()]
lines += [f"/{account}/{account}/{path}", *([query.replace("=", ":")] if query else [])]
digest = hmac.digest(base64.b64decode(key), "\n".join(lines).encode(), hashlib.sha256)
headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
conn = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
conn.request(method, f"/{account}/{path}" + (f"?{query}" if query else ""), body, headers)
print(conn.getresponse().status)
END
blob() { python3 "$folder/blob.py" "$port" "$@"; }

start
echo "Azurite 3.35.0: container created: $(blob PUT box restype=container)"
sleep 12
stored=$(blob PUT box/one "")
kill -9 "$pid"; wait "$pid" 2>/dev/null
start
killed_at_once=$(blob HEAD box/one "")
blob PUT box/two "" >/dev/null
sleep 12
kill -9 "$pid"; wait "$pid" 2>/dev/null
start
killed_later=$(blob HEAD box/two "")
echo "PUT of a blob: $stored; after a SIGKILL at once: $killed_at_once; another, 12 s later: $killed_later"
[ "$stored" = 201 ] && [ "$killed_at_once" = 404 ] && [ "$killed_later" = 200 ]
