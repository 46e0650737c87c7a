"""Transforms: an SQL text, a function of DataFrames, or a function of bodies."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Union, cast

from nsqclient.display import counted
from nsqclient.errors import ConfigError

if TYPE_CHECKING:
    from nsqclient.spark.dead_letter_folder import FolderDeadLetters
    from nsqclient.spark.publishing import TopicDeadLetters
    from pyspark.sql import DataFrame

    DeadLetters = Union[TopicDeadLetters, FolderDeadLetters]

logger: logging.Logger = logging.getLogger("nsqclient.spark")

#: The view of a batch in an SQL text.
VIEW = "messages"
#: Maximum number of failed rows whose errors a task logs.
_MOST_LOGGED = 3

_BODIES = (bytes, bytearray, memoryview, str)

#: Makes a batch with the column ``body``, and optionally ``topic`` and ``defer_ms``.
Transform = Callable[["DataFrame"], "DataFrame"]
#: Makes a body, several bodies, or None from a body.
BodyFunction = Callable[[bytes], Union[bytes, str, Iterable[Union[bytes, str]], None]]


def check_pandas() -> None:
    """Check that pandas is installed, which PySpark's ``mapInArrow`` needs."""
    if importlib.util.find_spec("pandas") is None:
        raise ConfigError(
            "map_body needs pandas, since PySpark's mapInArrow does: pip install 'pandas>=2.2'")


def load_function(path: str) -> Callable[..., Any]:
    module_name, colon, name = path.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"{path!r}: name a function as package.module:function")
    try:
        module = importlib.import_module(module_name)
    except ImportError as exc:
        raise ConfigError(
            f"cannot import {module_name}: {exc} (on a cluster, send it along with --py-files)"
        ) from exc
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"{module_name} has no function {name!r}")
    return cast(Callable[..., Any], function)


def sql(text: str) -> Transform:
    """Build a transform of an SQL text over the view ``messages``, the rows of a batch.

    For example ``SELECT upper(cast(body AS string)) AS body FROM messages``.
    """
    if not text.strip():
        text = f"the SQL text is empty: SELECT ... AS body FROM {VIEW}"  # nosec B608 # an error
        raise ConfigError(text)

    def transform(frame: DataFrame) -> DataFrame:
        frame.createOrReplaceTempView(VIEW)
        # Each batch has its own session, so the views of two queries do not collide.
        result: DataFrame = frame.sparkSession.sql(text)
        return result

    return transform


class BodyMapper:
    """Applies a function of bodies to rows, which keep their other columns. Runs on executors.

    Args:
        function: see ``BodyFunction``. A row becomes one row for each body.
        dead_letters: stores the rows that fail; None: their exception ends the query.
        name_batch: called in a task; see ``FolderDeadLetters.open``.
        max_size: an empty body, or one of more bytes, is an error. None: no check.
    """

    def __init__(
        self, function: BodyFunction, dead_letters: DeadLetters | None,
        name_batch: Callable[[], str], max_size: int | None = None,
    ) -> None:
        self._function = function
        self._dead_letters = dead_letters
        self._name_batch = name_batch
        self._max_size = max_size

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        if self._dead_letters is None:
            for batch in batches:
                yield self._mapped(batch, [], [])
            return
        import pyarrow as pa

        name, failed = self._name_batch(), 0
        with self._dead_letters.open(name) as keep:
            for batch in batches:
                bad: list[int] = []
                errors: list[str] = []
                result = self._mapped(batch, bad, errors)
                if bad:
                    keep(batch.take(pa.array(bad, pa.int64())), errors)
                for error in errors[:max(0, _MOST_LOGGED - failed)]:
                    logger.error("%s: %s", name, error)
                failed += len(bad)
                yield result
        if failed:
            logger.warning(
                "batch %s: %s failed: %s", name, counted(failed, "row"),
                self._dead_letters.describe())

    def _mapped(self, batch: Any, bad: list[int], errors: list[str]) -> Any:
        """Map a batch. With dead letters, add the failed rows to ``bad`` and ``errors``."""
        import pyarrow as pa

        at = batch.schema.names.index("body")
        rows: list[int] = []
        bodies: list[bytes] = []
        for row, body in enumerate(batch.column(at).to_pylist()):
            try:
                results = bodies_of(self._function(body))
                if self._max_size is not None:
                    _check_sizes(results, self._max_size)
            except Exception as exc:
                if self._dead_letters is None:
                    raise
                bad.append(row)
                errors.append(f"{type(exc).__name__}: {exc}")
            else:
                rows += [row] * len(results)
                bodies += results
        field = batch.schema.field(at)
        return batch.take(pa.array(rows, pa.int64())).set_column(
            at, field, pa.array(bodies, field.type))


def _check_sizes(bodies: list[bytes], max_size: int) -> None:
    for body in bodies:
        if not body:
            raise ValueError("the function returned an empty body; None publishes nothing")
        if len(body) > max_size:
            raise ValueError(f"the function returned {len(body)} bytes; nsqd takes {max_size}")


def bodies_of(found: Any) -> list[bytes]:
    """Convert the result of a BodyFunction."""
    if found is None:
        return []
    parts: Iterable[Any] = [found] if isinstance(found, _BODIES) else found
    results = []
    for part in parts:
        if not isinstance(part, _BODIES):  # bytes(7) would be seven zeros
            raise TypeError(f"the function returned {type(part).__name__}, not bytes or str")
        results.append(part.encode() if isinstance(part, str) else bytes(part))
    return results
