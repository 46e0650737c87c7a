"""A stand-in for jq: ``jq -r .FIELD``, one JSON object on each line."""

import json
import sys

assert sys.argv[1] == "-r" and sys.argv[2].startswith(".")
for line in sys.stdin:
    print(json.loads(line)[sys.argv[2][1:]], flush=True)
