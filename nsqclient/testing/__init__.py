"""For tests of programs that use nsqclient: messages without a server, and fixtures for pytest.

``make_message`` builds a message that keeps its answers, ``handle`` calls a handler as a consumer
does. ``pytest_plugin`` has the fixtures ``nsqd``, ``nsqlookupd``, ``nsqd_factory`` and
``published``, which pytest knows once nsqclient is installed. ``docs/topics/testing-handlers.rst``
shows all of it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqclient.testing.messages import RecordedMessage, handle, make_message
    from nsqclient.testing.published import Published

__all__ = ["Published", "RecordedMessage", "handle", "make_message"]


def __getattr__(name: str) -> Any:
    # pytest imports this package in every run because of the plugin in it; the rest is imported
    # with its first use.
    if name in ("RecordedMessage", "handle", "make_message"):
        from nsqclient.testing import messages

        return getattr(messages, name)
    if name == "Published":
        from nsqclient.testing.published import Published

        return Published
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
