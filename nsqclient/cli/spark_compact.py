"""``nsqclient spark compact``: few large files of an archive's many small ones."""

from __future__ import annotations

from collections.abc import Sequence

from nsqclient.cli import spark_run
from nsqclient.cli.goflags import DURATION, INT, STRING, CommandLineError, Parsed
from nsqclient.cli.progress import show_size
from nsqclient.cli.tools import ToolFlags, run
from nsqclient.runtime.plurals import counted
from nsqclient.spark.pipelines import compact

PROGRAM = "spark compact"

_SUMMARY = """\
Copies the files of an archive in Parquet into few large ones, in a folder of its own with the same
partitions. Each file is taken once, however often it is called and whatever fails in between."""

_EXAMPLES = [
    ("every hour that is over for an hour",
     "nsqclient spark compact --path=/data/orders --target=/data/orders-large"),
]


def build_flags() -> ToolFlags:
    """The flags of the compaction."""
    flags = ToolFlags(PROGRAM, _SUMMARY, _EXAMPLES)
    flags.group("What")
    flags.add("path", STRING, "", "folder of the archive; required")
    flags.add("target", STRING, "", "folder of the large files; required")
    flags.add("older-than", DURATION, 3600.0, "time since the end of an hour, or of a day")
    flags.add("target-bytes", INT, 128 * 1024 * 1024, "how large files should be")
    spark_run.add_session(flags)
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    """Compact once; return the exit status."""
    return run(build_flags(), argv, _run)


def _run(parsed: Parsed) -> int:
    values = parsed.values
    for flag in ("path", "target"):
        if not values[flag]:
            raise CommandLineError(f"--{flag} required")
    spark = spark_run.start_session(values, f"nsqclient {PROGRAM}")
    try:
        done = compact(
            spark, values["path"], values["target"], older_than=values["older-than"],
            target_bytes=values["target-bytes"])
    finally:
        spark.stop()
    print(f"{counted(done.partitions, 'partition')}: {counted(done.files_before, 'file')}"
          f" ({show_size(done.bytes_before)}) became {done.files_after}"
          f" ({show_size(done.bytes_after)})")
    return 0
