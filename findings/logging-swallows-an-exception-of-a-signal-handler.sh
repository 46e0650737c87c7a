#!/bin/sh
# Guess:   An exception that a signal handler raises reaches the code that was interrupted, or a
#          handler of it.
# Happens: logging.LogRecord reads the name of the process under "except Exception: pass". An
#          exception of a signal handler (a time limit) that arrives there is gone, and the program
#          goes on. With logging.logMultiprocessing = False none is.
# Version: CPython 3.10.13, 3.11.7, 3.12.1, 3.13.0
# Source:  github.com/python/cpython, Lib/logging/__init__.py (LogRecord.__init__,
#          multiprocessing.current_process)
# Seen:    2026-11-28
# Needs:   python3 on POSIX
set -u
command -v python3 >/dev/null || { echo "NOT RUN: no python3"; exit 77; }
exec python3 - <<'EOF'
import logging, multiprocessing, random, signal, sys

logger = logging.getLogger("finding")
logger.addHandler(logging.NullHandler())
logger.propagate = False
raised = 0

class TimeLimit(Exception):
    pass

def on_alarm(number, frame):
    global raised
    raised += 1
    raise TimeLimit

def log_until_the_alarm():
    signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 3e-4))
    before = raised
    while raised == before:
        logger.error("a message with %s", "an argument")

def run(count):
    """Raise so many exceptions at random moments of log calls; return how many arrived."""
    global raised
    raised = caught = 0
    while raised < count:
        try:
            log_until_the_alarm()
        except TimeLimit:
            caught += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    return caught

signal.signal(signal.SIGALRM, on_alarm)
count = 20_000
with_names = count - run(count)
logging.logMultiprocessing = False
if hasattr(logging, "logAsyncioTasks"):
    logging.logAsyncioTasks = False
without = count - run(count)
print(f"Python {sys.version.split()[0]}: of {count:,} exceptions {with_names} were lost,"
      f" and {without} without names of processes and tasks")
sys.exit(with_names == 0 or without >= with_names)
EOF
