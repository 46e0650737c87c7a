"""What a row of the data source looks like, for Spark and for Arrow. pyarrow is imported inside."""

from __future__ import annotations

from typing import Any

#: The rows that reading gives.
ROW_DDL = (
    "topic string, channel string, nsqd string, message_id string, attempts int,"
    " timestamp timestamp, timestamp_ns bigint, body binary"
)


def row_schema() -> Any:
    """Build the Arrow schema of the rows; Spark accepts exactly this one."""
    import pyarrow as pa

    return pa.schema([
        ("topic", pa.string()), ("channel", pa.string()), ("nsqd", pa.string()),
        ("message_id", pa.string()), ("attempts", pa.int32()),
        ("timestamp", pa.timestamp("us", tz="UTC")), ("timestamp_ns", pa.int64()),
        ("body", pa.binary()),
    ])
