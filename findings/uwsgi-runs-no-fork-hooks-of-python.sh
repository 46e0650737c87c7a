#!/bin/sh
# Guess:   What a library registered with os.register_at_fork runs in each worker of a pre-forking
#          server.
# Happens: uWSGI forks in C: the hooks do not run in its workers unless --py-call-uwsgi-fork-hooks
#          is given. And --enable-threads is a stub: threads are always on.
# Version: uWSGI 2.0.31
# Source:  github.com/unbit/uwsgi, plugins/python/python_plugin.c (uwsgi_python_post_fork),
#          core/uwsgi.c (sanitize_args)
# Seen:    2026-11-28
# Needs:   python3 with venv and headers, pip, a C compiler, curl
set -u
work=$(mktemp -d) || exit 77
server=
trap '[ -z "$server" ] || { kill -9 "$server" 2>/dev/null; wait "$server" 2>/dev/null; }; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
skip() { echo "NOT RUN: $1"; exit 77; }
command -v curl >/dev/null || skip "no curl"
command -v cc >/dev/null || skip "no C compiler"
python3 -m venv "$work/venv" 2>/dev/null || skip "no python3 with venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check -q install uwsgi==2.0.31 >"$work/pip.log" 2>&1 ||
    { tail -n 3 "$work/pip.log"; skip "pip could not build uwsgi"; }
cat >"$work/app.py" <<'EOF'
import os
ran = []
os.register_at_fork(after_in_child=lambda: ran.append(os.getpid()))
def application(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [("hooks ran" if os.getpid() in ran else "no hook ran").encode()]
EOF
ask() { # options; prints what the worker says
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$work/venv/bin/uwsgi" --http-socket="127.0.0.1:$port" --master --processes=1 --die-on-term \
        --pythonpath="$work" --module=app "$@" >"$work/uwsgi.log" 2>&1 &
    server=$!
    answer=$(curl -s --retry 40 --retry-connrefused --retry-delay 1 "http://127.0.0.1:$port/")
    kill "$server"; wait "$server" 2>/dev/null; server=
}
"$work/venv/bin/uwsgi" --version
ask; plain=$answer; echo "by default: $plain"
ask --py-call-uwsgi-fork-hooks; hooks=$answer; echo "--py-call-uwsgi-fork-hooks: $hooks"
[ "$plain" = "no hook ran" ] && [ "$hooks" = "hooks ran" ]
