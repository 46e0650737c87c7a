#!/bin/sh
# Guess:   python-snappy raises UncompressError, or cramjam DecompressionError, for a stream whose
#          checksum is wrong.
# Happens: StreamDecompressor raises OSError without an errno. Code that takes OSError for a lost
#          connection takes damaged data for one, too.
# Version: python-snappy 0.7.3, cramjam 2.14.0
# Source:  github.com/intake/python-snappy, src/snappy/snappy.py (StreamDecompressor); cramjam's
#          snappy Decompressor
# Seen:    2026-11-28
# Needs:   python3 with venv, pip
set -u
work=$(mktemp -d) || exit 77
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
skip() { echo "NOT RUN: $1"; exit 77; }
python=${PYTHON:-python3}
"$python" -m venv "$work/venv" 2>/dev/null || skip "no python3 with venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check -q install python-snappy==0.7.3 cramjam==2.14.0 >"$work/pip.log" 2>&1 ||
    { tail -n 3 "$work/pip.log"; skip "pip could not install python-snappy==0.7.3 cramjam==2.14.0"; }
"$work/venv/bin/python" - <<'EOF'
import sys
from importlib.metadata import version
import snappy

data = bytearray(snappy.StreamCompressor().compress(b"a message " * 50))
data[14] ^= 1  # a bit of the checksum of the first chunk
try:
    snappy.StreamDecompressor().decompress(bytes(data))
except BaseException as error:
    names = [kind.__name__ for kind in type(error).__mro__[:-1]]
    print(f"python-snappy {version('python-snappy')}, cramjam {version('cramjam')}:"
          f" {' < '.join(names)}: {error} (errno {getattr(error, 'errno', '-')})")
    sys.exit(not (isinstance(error, OSError) and error.errno is None
                  and not isinstance(error, snappy.UncompressError)))
print("no error")
sys.exit(1)
EOF
