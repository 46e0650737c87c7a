"""``nsqclient spark migrate``: a query with a spool goes on with shared storage. Needs no Spark."""

from __future__ import annotations

import os

from nsqclient.cli.flags import PATH, STRING, CommandLineError, FlagError, Parsed
from nsqclient.cli.tool_flags import ToolFlags
from nsqclient.spark.options import check_spool_dir
from nsqclient.spark.pipelines.sources import local_path

_SUMMARY = """\
Moves a query from its spool to shared storage: copies all messages that Spark has not committed,
and rewrites the last offsets of the checkpoint. First stop the query. After the migration, start
owners (nsqclient spark ingest), then the query with the option storage and the same checkpoint. If
the migration is interrupted, run the same command again."""

_EXAMPLES = [
    ("migrate a query whose spool is in its checkpoint",
     "nsqclient spark migrate --checkpoint=/data/orders-checkpoint --storage=s3://bucket/nsq"),
    ("migrate a query whose spool is in another folder",
     "nsqclient spark migrate --checkpoint=/data/cp --spool-dir=/ssd/spool \\\n"
     "      --storage=file:///mnt/nsq"),
]


def migrate_flags() -> ToolFlags:
    """The flags of the migration."""
    flags = ToolFlags("spark migrate", run_migrate, _SUMMARY, _EXAMPLES)
    flags.group("Input")
    flags.add("checkpoint", PATH, "", "checkpoint of the query, a folder on this machine; required")
    flags.add("spool-dir", PATH, "", "spool of the query (default: nsq-spool in the checkpoint)")
    flags.group("Output")
    flags.add("storage", STRING, "", "shared storage, file:///folder or s3://bucket/prefix;"
              " required. Credentials come from the environment, a profile or a role")
    flags.add_common()
    return flags


def run_migrate(parsed: Parsed) -> int:
    """Move the query; print what was copied.

    Raises:
        NSQError: see ``nsqclient.spark.migration.migrate``.
    """
    values = parsed.values
    for flag in ("checkpoint", "storage"):
        if not values[flag]:
            raise FlagError(f"--{flag} required")
    checkpoint = os.path.abspath(_mounted(values["checkpoint"]))
    spool_dir = values["spool-dir"] or os.path.join(checkpoint, "nsq-spool")
    check_spool_dir(spool_dir)
    try:
        from nsqclient.spark.migration import migrate
        from nsqclient.spark.storage.store import open_store
    except ImportError as exc:
        raise CommandLineError(
            f"pyarrow is needed: pip install 'nsqclient[spark-storage]' ({exc})") from exc
    store = open_store(values["storage"])
    try:
        print(migrate(spool_dir, checkpoint, store))
    finally:
        store.close()
    print(f"start owners with --storage={values['storage']}, and the query with that in place of"
          " its nsqds and spool")
    return 0


def _mounted(folder: str) -> str:
    if "://" in folder and not folder.startswith("file:"):
        raise CommandLineError(
            f"--checkpoint={folder} is not on a mounted file system: copy the folder here, migrate"
            " the copy, and copy it back")
    return local_path(folder)
