"""For tests of programs that use nsqclient: messages without a server, and pytest fixtures.

``pytest_plugin`` has the fixtures ``nsqd``, ``nsqlookupd``, ``nsqd_factory`` and ``published``,
which pytest knows once nsqclient is installed. The manual is ``docs/topics/testing-handlers.rst``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqclient.testing.messages import Published, RecordedMessage, handle, make_message

__all__ = ["Published", "RecordedMessage", "handle", "make_message"]


def __getattr__(name: str) -> Any:
    # pytest imports this package in every run because of the plugin in it; the rest is imported
    # with its first use.
    if name in __all__:
        from nsqclient.testing import messages

        return getattr(messages, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
