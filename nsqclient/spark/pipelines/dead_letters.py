"""Keeps rows for which a pipeline's function fails: in a topic, or a folder.

The rows of a task are durable before it ends. A task that runs again keeps them again: a topic has
them twice then, a folder once.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

from nsqclient.partitioned.producer import Producer
from nsqclient.spark.dead_letter_folder import FolderDeadLetters, Keep
from nsqclient.spark.options import WriteOptions
from nsqclient.spark.publishing import Columns, RowPublisher


@dataclass(frozen=True)
class TopicDeadLetters:
    """Publishes the bodies of rows. ``options.topic`` says where."""

    options: WriteOptions

    @contextlib.contextmanager
    def open(self, batch_name: str) -> Iterator[Keep]:
        """Keep rows of one task: published when the block ends without an error."""
        options = self.options
        with Producer(  # it has no socket before its first publish
            options.nsqd, lookupd_http_addresses=options.lookupd, config=options.config,
        ) as producer:
            publisher = RowPublisher(producer, options, Columns("body", False, False))
            yield lambda batch, errors: publisher.add(batch.select(["body"]))
            publisher.finish()

    def describe(self) -> str:
        return f"published to {self.options.topic}"


#: A place for rows. Pickles; tasks use it.
DeadLetters = Union[TopicDeadLetters, FolderDeadLetters]


def letter_of(row: Mapping[str, Any], error: str) -> dict[str, Any]:
    """Return the fields of ``nsq_tail --json``, and ``channel`` and ``error``.

    A body that is not UTF-8 is ``body_base64``.
    """
    line = {
        "topic": row["topic"], "channel": row["channel"], "id": row["message_id"],
        "timestamp": row["timestamp_ns"], "attempts": row["attempts"], "nsqd": row["nsqd"],
    }
    body: bytes = row["body"]
    try:
        line["body"] = body.decode()
    except UnicodeDecodeError:
        line["body_base64"] = base64.b64encode(body).decode()
    line["error"] = error
    return line
