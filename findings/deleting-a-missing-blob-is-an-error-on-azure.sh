#!/bin/sh
# Guess:   Deleting an object that is not there succeeds, as on S3; a list of keys is deleted as
#          far as they are there.
# Happens: obstore raises FileNotFoundError on Azure (Azurite), also for a list, of which other
#          keys may go on being deleted after the exception. Its local store leaves the rest in
#          place; S3 and memory say nothing.
# Version: obstore 0.12.1, Azurite 3.35.0
# Source:  docs of Azure Blob Storage, Delete Blob (404 BlobNotFound); arrow-rs-object-store,
#          src/azure/client.rs
# Seen:    2026-11-28
# Needs:   python3.11 or newer with venv, pip, node, npm
set -u
work=$(mktemp -d) || exit 77
server=
trap '[ -z "$server" ] || { kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; }; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
skip() { echo "NOT RUN: $1"; exit 77; }
command -v npm >/dev/null || skip "no npm"
python3 -m venv "$work/venv" 2>/dev/null || skip "no python3 with venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check -q install obstore==0.12.1 >"$work/log" 2>&1 ||
    { tail -n 3 "$work/log"; skip "pip could not install obstore 0.12.1"; }
npm install --prefix "$work/npm" --silent --no-audit --no-fund azurite@3.35.0 >"$work/log" 2>&1 ||
    { tail -n 3 "$work/log"; skip "npm could not install azurite"; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
node "$work/npm/node_modules/azurite/dist/src/blob/main.js" --silent --skipApiVersionCheck --location "$work/blobs" \
    --blobHost 127.0.0.1 --blobPort "$port" >"$work/azurite.log" 2>&1 &
server=$!
"$work/venv/bin/python" - "$port" "$work" <<'EOF'
import base64, email.utils, hashlib, hmac, http.client, sys, time
from importlib.metadata import version
import obstore
from obstore.store import AzureStore, LocalStore, MemoryStore

port, work = sys.argv[1:]
# Azurite's public account for tests.
account, key = "devstoreaccount1", ("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6"
                                    "tq/K1SZFPTOtr/KBHBeksoGMGw==")
endpoint = f"http://127.0.0.1:{port}/{account}"

def create_container(name):
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    text = "PUT" + "\n" * 12 + "".join(f"{k}:{v}\n" for k, v in sorted(headers.items()))
    text += f"/{account}/{account}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
    connection.request("PUT", f"/{account}/{name}?restype=container", headers=headers)
    return connection.getresponse().status

for _ in range(60):
    try:
        assert create_container("finding") == 201
        break
    except OSError:
        time.sleep(0.5)
stores = {
    "Azurite": AzureStore("finding", account_name=account, account_key=key, endpoint=endpoint,
                          client_options={"allow_http": True}),
    "local": LocalStore(work + "/local", mkdir=True),
    "memory": MemoryStore(),
}
found = {}
for name, store in stores.items():
    keys = [f"k{number:04}" for number in range(600)]
    for one in keys:
        obstore.put(store, one, b"x")
    obstore.delete(store, "k0000")
    said = []
    for what in ("k0000", keys[1:300] + ["k0000"] + keys[300:]):
        try:
            obstore.delete(store, what)
            said.append("nothing")
        except FileNotFoundError:
            said.append("FileNotFoundError")
    time.sleep(2)
    left = sum(len(batch) for batch in obstore.list(store))
    found[name] = said[0]
    print(f"obstore {version('obstore')}, {name}: one missing key: {said[0]};"
          f" a list with a missing key: {said[1]}, {left} of 599 left")
sys.exit(found["Azurite"] != "FileNotFoundError" or found["memory"] != "nothing")
EOF
