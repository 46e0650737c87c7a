"""``compact``: copies the files of an archive, each once, into few large ones in another folder.

The archive is not changed: Spark's file sink keeps a list of its files, and changing them would
break the query and its readers. The target is plain Parquet, for every tool.

Each file of the archive is copied once, even if a run fails. A run writes the new files to a work
folder, then a *plan* that lists the old files and the names of the new files, and then renames the
new files. The next run first completes a plan that it finds, if the archive is not empty. A file
that is in no plan is new.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from nsqclient.display import counted
from nsqclient.errors import ConfigError
from nsqclient.runtime.deadline import Duration, to_seconds
from nsqclient.spark.pipelines.archiving import DATE, HOUR, LARGE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: Folders in the target, of the plans and of unfinished files. Spark and other tools ignore names
#: that begin with an underscore.
_PLANS, _WORK = "_compacted", "_work"
_RELATIVE = re.compile(r"(?:[A-Za-z_]+=[^/]*/)*[^/]+$")


class Compaction(NamedTuple):
    """The result of a run."""

    partitions: int  #: folders with new files
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact(
    spark: SparkSession,
    path: str,
    target: str,
    *,
    older_than: Duration = 3600.0,
    target_bytes: int = 128 * 1024 * 1024,
    now: float | None = None,
) -> Compaction:
    """Copy the files of an archive, each once, into few large ones.

    Call it regularly; the archive may be written meanwhile. Only one call at a time per target.

    Args:
        spark: a session with a JVM beside it (not Spark Connect).
        path: an archive in Parquet, as ``archive`` writes it.
        target: another folder, with the same partitions.
        older_than: seconds from the end of an hour (or day) until it is compacted. If
            messages arrive later, the next run copies them to another file.
        target_bytes: size of the large files.
        now: seconds since 1970; default: the current time.

    Returns: the number of files and bytes, before and after.

    Raises:
        ConfigError: the target is the archive, or ``target_bytes`` is less than 1.
    """
    if target.rstrip("/") == path.rstrip("/"):
        raise ConfigError("the target of a compaction is another folder than the archive")
    if target_bytes < 1:
        raise ConfigError(f"target_bytes of {target_bytes} is too small")
    source, folder = HadoopFolder(spark, path), HadoopFolder(spark, target)
    if not source.names():
        return Compaction(0, 0, 0, 0, 0)
    done = _finish_plans(folder)
    limit = (time.time() if now is None else now) - to_seconds(older_than, "older_than")
    total = Compaction(0, 0, 0, 0, 0)
    all_files = _committed_files(spark, path)
    for partition, files in sorted(by_partition(all_files).items()):
        new = sorted(name for name in files if relative(name) not in done)
        if not new or not is_over(partition, limit):
            continue
        sizes = [source.size(name) for name in new]
        made = _merge(spark, folder, path, partition, new, sum(sizes), target_bytes)
        total = Compaction(
            total.partitions + 1, total.files_before + len(new), total.files_after + len(made),
            total.bytes_before + sum(sizes), total.bytes_after + sum(made.values()))
        logger.info("compacted %s: %s into %d", partition or path, counted(len(new), "file"),
                    len(made))
    return total


def _committed_files(spark: SparkSession, path: str) -> list[str]:
    from pyspark.errors import AnalysisException

    try:
        urls = spark.read.parquet(path).inputFiles()
    except AnalysisException as exc:
        if exc.getCondition() == "UNABLE_TO_INFER_SCHEMA":  # there are no files
            return []
        raise
    # inputFiles() percent-encodes; Spark and Hadoop expect plain paths.
    return [unquote(url) for url in urls]


def by_partition(files: Sequence[str]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in files:
        folder, slash, _ = relative(name).rpartition("/")
        found.setdefault(folder + slash, []).append(name)
    return found


def relative(name: str) -> str:
    """Return the path of a file within its archive: plans stay valid if the archive is moved."""
    match = _RELATIVE.search(name)
    assert match is not None, name
    return match[0]


def is_over(partition: str, limit: float) -> bool:
    """True if the hour or day of a partition ended before ``limit``, in UTC.

    A partition without a date counts as over.
    """
    values = dict(part.split("=", 1) for part in partition.strip("/").split("/") if "=" in part)
    if DATE not in values or values[DATE].startswith("__"):  # Hive's name of null
        return True
    end = values[DATE] + "T" + (values.get(HOUR) or "23")
    return end < time.strftime("%Y-%m-%dT%H", time.gmtime(limit))


def _merge(
    spark: SparkSession, folder: HadoopFolder, path: str, partition: str, files: list[str],
    size: int, target_bytes: int,
) -> Mapping[str, int]:
    run = f"{time.time_ns():x}"
    work = f"{_WORK}/{run}"
    # With the partition's own folder as the base, the rows do not have the partition's columns.
    frame = spark.read.option("basePath", files[0].rpartition("/")[0]).parquet(*files)
    frame.coalesce(max(1, -(-size // target_bytes))).write.options(
        **LARGE_ROWS).parquet(f"{folder.path}/{work}")
    names = [name for name in folder.names(work) if name.endswith(".parquet")]
    moves = {
        f"{work}/{name}": f"{partition}compact-{run}-{number}.parquet"
        for number, name in enumerate(names)
    }
    made = {new: folder.size(old) for old, new in moves.items()}
    taken = [relative(name) for name in files]
    folder.write(f"{_PLANS}/{run}.plan", json.dumps({"from": taken, "to": moves}))
    _carry_out(folder, run, moves)
    return made


def _finish_plans(folder: HadoopFolder) -> set[str]:
    done: set[str] = set()
    for name in folder.names(_PLANS):
        run, _, state = name.rpartition(".")
        if state not in ("plan", "done"):
            continue
        plan = json.loads(folder.read(f"{_PLANS}/{name}"))
        done.update(plan["from"])
        if state == "plan":
            _carry_out(folder, run, plan["to"])
    folder.delete(_WORK)  # left by a run that failed before it wrote its plan
    return done


def _carry_out(folder: HadoopFolder, run: str, moves: Mapping[str, str]) -> None:
    for old, new in moves.items():
        if folder.exists(old):  # otherwise it was already renamed
            folder.rename(old, new)
    folder.rename(f"{_PLANS}/{run}.plan", f"{_PLANS}/{run}.done")
    folder.delete(f"{_WORK}/{run}")


class HadoopFolder:
    """A folder on any file system of Hadoop: a local disk, HDFS or an object store.

    Methods raise Py4JJavaError with the file system's own text; ``rename`` and ``write`` also
    OSError.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        context: Any = spark.sparkContext._jsc
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        self._system = self._new_path(path).getFileSystem(context.hadoopConfiguration())
        self.path: str = path.rstrip("/")

    def names(self, within: str = "") -> list[str]:
        """The sorted names in a subfolder; empty if it does not exist."""
        where = self._at(within)
        if not self._system.exists(where):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(where))

    def size(self, name: str) -> int:
        return int(self._system.getFileStatus(self._at(name)).getLen())

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self._at(name)))

    def read(self, name: str) -> str:
        stream = self._system.open(self._at(name))
        try:
            return str(self._io.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a small text atomically."""
        temporary = f"{name}.tmp"
        stream = self._system.create(self._at(temporary), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.rename(temporary, name)

    def rename(self, old: str, new: str) -> None:
        target = self._at(new)
        self._system.mkdirs(target.getParent())
        if not self._system.rename(self._at(old), target):
            raise OSError(f"cannot rename {self._at(old)} to {target}")

    def delete(self, name: str) -> None:
        self._system.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        if not name:
            return self._new_path(self.path)
        return self._new_path(name if ":/" in name else f"{self.path}/{name}")
