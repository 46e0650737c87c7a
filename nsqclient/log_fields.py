"""``log_fields``: what a log record is about, as fields for formatters that write JSON.

They are attributes of the record, as ``logging`` makes them of ``extra``: ``topic``, ``channel``,
``nsqd`` (``host:port``) and ``message_id``. A record has those that are known where it is logged.
"""

from __future__ import annotations

from typing import Protocol


class _Message(Protocol):
    """What a message says of itself."""

    @property
    def id(self) -> object: ...

    @property
    def nsqd_address(self) -> str: ...


def log_fields(
    *, topic: str = "", channel: str = "", nsqd: str = "", message: _Message | None = None
) -> dict[str, str]:
    """Return the fields of a record, for ``extra``; what is empty is left out.

    Args:
        message: gives ``message_id`` and ``nsqd``.
    """
    fields = {"topic": topic, "channel": channel, "nsqd": nsqd}
    if message is not None:
        fields["nsqd"] = message.nsqd_address
        fields["message_id"] = str(message.id)
    return {name: value for name, value in fields.items() if value}
