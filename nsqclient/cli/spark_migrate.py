"""``nsqclient spark migrate``: a query with a spool goes on with shared storage. Needs no Spark."""

from __future__ import annotations

import os

from nsqclient.cli.goflags import PATH, STRING, CommandLineError, FlagError, Parsed
from nsqclient.cli.tool_flags import ToolFlags
from nsqclient.spark.options import check_spool_dir
from nsqclient.spark.pipelines.sources import local_path

_SUMMARY = """\
Moves a query from its spool to shared storage: what Spark has not committed is copied there, and
the checkpoint's last offsets are written anew. End the query first; then start owners (nsqclient
spark ingest), and the query with the option storage and the same checkpoint. A migration that was
killed is repeated by the same command."""

_EXAMPLES = [
    ("a pipeline, whose spool is in its checkpoint",
     "nsqclient spark migrate --checkpoint=/data/orders-checkpoint --storage=s3://bucket/nsq"),
    ("a query with a spool elsewhere",
     "nsqclient spark migrate --checkpoint=/data/cp --spool-dir=/ssd/spool \\\n"
     "      --storage=file:///mnt/nsq"),
]


def migrate_flags() -> ToolFlags:
    """The flags of the migration."""
    flags = ToolFlags("spark migrate", _SUMMARY, _EXAMPLES)
    flags.group("What to move")
    flags.add("checkpoint", PATH, "", "checkpoint of the query, a folder of this machine; required")
    flags.add("spool-dir", PATH, "", "its spool (default: nsq-spool in the checkpoint)")
    flags.group("Where to")
    flags.add("storage", STRING, "", "file:///folder or s3://bucket/prefix; required. Credentials"
              " come from the environment, a profile or a role")
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
