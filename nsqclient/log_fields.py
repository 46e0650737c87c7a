"""``log_fields``: what a log record is about, as fields for formatters that write JSON.

They are attributes of the record, as ``logging`` makes them of ``extra``: ``topic``, ``channel``,
``nsqd`` (``host:port``), ``message_id`` and ``attempts``. A record has those that are known where
it is logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqclient.message import Message


def log_fields(
    *, topic: str = "", channel: str = "", nsqd: str = "", message: Message | None = None
) -> dict[str, object]:
    """Return the fields of a record, for ``extra``; what is empty is left out.

    Args:
        message: gives all of them.
    """
    fields: dict[str, object] = {"topic": topic, "channel": channel, "nsqd": nsqd}
    if message is not None:
        fields |= {
            "topic": topic or message.topic, "channel": channel or message.channel,
            "nsqd": message.nsqd_address, "message_id": str(message.id),
            "attempts": message.attempts,
        }
    return {name: value for name, value in fields.items() if value}
