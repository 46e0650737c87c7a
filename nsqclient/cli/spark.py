"""``nsqclient spark``: the pipelines on Spark, ``archive``, ``stream`` and ``compact``.

``nsqclient spark script`` prints the path of a file that spark-submit can be given; its arguments
are the same.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

#: command -> (module with ``main(argv) -> int``, what it does)
COMMANDS = {
    "archive": ("nsqclient.cli.spark_archive", "write a topic into Parquet by date and hour"),
    "compact": ("nsqclient.cli.spark_compact", "make few large files of an archive's small ones"),
    "stream": ("nsqclient.cli.spark_stream", "transform a topic and publish to another"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a pipeline; return the exit status. 2: no such command."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words[0] if words else ""
    if command in COMMANDS:
        status: int = importlib.import_module(COMMANDS[command][0]).main(words[1:])
        return status
    if command == "script":
        print(Path(__file__).resolve().parents[2] / "pyspark_nsq" / "__main__.py")
        return 0
    if command in ("-h", "-help", "--help", "help"):
        sys.stdout.write(_usage())
        return 0
    if command:
        sys.stderr.write(f"nsqclient spark: unknown command {command!r}\n")
    sys.stderr.write(_usage())
    return 2


def _usage() -> str:
    lines = ["Usage: nsqclient spark COMMAND [flags]", "", "Commands:"]
    lines += [f"  {name:<8} {summary}" for name, (_, summary) in sorted(COMMANDS.items())]
    lines += [
        "  script   print the file to give to spark-submit, which takes the same words",
        "", "'nsqclient spark COMMAND --help' shows the flags of a command.",
    ]
    return "\n".join(lines) + "\n"
