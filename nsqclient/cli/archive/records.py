"""What one message looks like in a file. Pure."""

from __future__ import annotations

from collections.abc import Callable

from nsqclient.cli.lines import Renderer
from nsqclient.message import Message

#: Makes a record of a message, its end of line included.
Formatter = Callable[[Message], bytes]

#: The choices of ``--format``.
FORMATS = ("lines", "jsonl")


def format_line(message: Message) -> bytes:
    """The body and an end of line, as the original writes it."""
    return message.body + b"\n"


def make_formatter(choice: str, topic: str) -> Formatter:
    """Return the formatter of ``--format``; jsonl is what ``nsq_tail --json`` prints."""
    if choice == "lines":
        return format_line
    render = Renderer(as_json=True)
    return lambda message: render(topic, message)
