"""``Folder``: files wherever Spark keeps them (local disk, HDFS, an object store), through Hadoop.

Only what compaction needs: list, read and write small texts, rename, delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """A folder of Spark's file systems.

    Args:
        spark: a session with a JVM beside it (not Spark Connect).
        path: as Spark takes it.

    Raises of all methods: Py4JJavaError, with the file system's own words.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        context: Any = spark.sparkContext._jsc
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        self._system = self._new_path(path).getFileSystem(context.hadoopConfiguration())
        self.path = path.rstrip("/")

    def names(self, within: str = "") -> list[str]:
        """The names in a folder below this one, sorted; empty where there is none."""
        where = self._at(within)
        if not self._system.exists(where):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(where))

    def size(self, name: str) -> int:
        """Bytes of a file, given below this folder or in full."""
        return int(self._system.getFileStatus(self._at(name)).getLen())

    def exists(self, name: str) -> bool:
        """Tell whether a file or folder is there."""
        return bool(self._system.exists(self._at(name)))

    def read(self, name: str) -> str:
        """Read a small text."""
        stream = self._system.open(self._at(name))
        try:
            return str(self._io.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a small text, which is there whole or not at all."""
        temporary = f"{name}.tmp"
        stream = self._system.create(self._at(temporary), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.rename(temporary, name)

    def rename(self, old: str, new: str) -> None:
        """Rename a file; folders on the way are made.

        Raises:
            OSError: the file system did not do it.
        """
        target = self._at(new)
        self._system.mkdirs(target.getParent())
        if not self._system.rename(self._at(old), target):
            raise OSError(f"cannot rename {self._at(old)} to {target}")

    def delete(self, name: str) -> None:
        """Delete a file or a folder with all in it; nothing where there is none."""
        self._system.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        if not name:
            return self._new_path(self.path)
        return self._new_path(name if ":/" in name else f"{self.path}/{name}")
