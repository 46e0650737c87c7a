#!/bin/sh
# Guess:   moto, whose store is a dict in threads, lets two racing PUTs with If-None-Match: * both
#          succeed.
# Happens: Of eight that race for one key, one gets 200 and the others 412, in each of 40 rounds.
#          Tests of a lock on S3 can use it.
# Version: moto 5.2.5
# Source:  github.com/getmoto/moto, moto/s3/responses.py (If-None-Match), moto/server.py
# Seen:    2026-11-28
# Needs:   python3 with venv, pip
set -u
work=$(mktemp -d) || exit 77
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
skip() { echo "NOT RUN: $1"; exit 77; }
python3 -m venv "$work/venv" 2>/dev/null || skip "no python3 with venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check -q install 'moto[s3,server]==5.2.5' >"$work/log" 2>&1 ||
    { tail -n 3 "$work/log"; skip "pip could not install moto 5.2.5"; }
AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x "$work/venv/bin/python" - <<'EOF'
import logging, sys, threading
from collections import Counter
from importlib.metadata import version
import boto3
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
try:
    host, port = server.get_host_and_port()
    clients = [boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
               for _ in range(8)]
    clients[0].create_bucket(Bucket="finding")
    outcomes, winners = Counter(), Counter()

    def race(client, key, start, wins):
        start.wait()
        try:
            client.put_object(Bucket="finding", Key=key, Body=b"x", IfNoneMatch="*")
            wins.append(1)
        except ClientError as error:
            outcomes[error.response["Error"]["Code"]] += 1

    for number in range(40):
        start, wins = threading.Barrier(len(clients)), []
        threads = [threading.Thread(target=race, args=(client, f"k{number}", start, wins)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners[len(wins)] += 1
finally:
    server.stop()
print(f"moto {version('moto')}: rounds by number of winners {dict(winners)}, the others: {dict(outcomes)}")
sys.exit(set(winners) != {1})
EOF
