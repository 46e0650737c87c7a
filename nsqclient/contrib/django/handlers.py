"""What stands around each message in a Django process: database connections, a transaction.

A request has this from Django's own handler; a message has it from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import close_old_connections, reset_queries, transaction

from nsqclient.consuming.handling import Handler
from nsqclient.contrib.running import within


def with_databases(handler: Handler, atomic: str | None = None) -> Handler:
    """Return a handler that treats database connections as a request does.

    Before and after each message connections that are broken, or older than ``CONN_MAX_AGE``, are
    closed, so a database that was restarted costs one message at most, which is requeued. Each
    worker thread has connections of its own.

    Args:
        atomic: alias of a database: the handler runs in a transaction on it, which commits
            before the message is finished and is rolled back when the handler raises.
    """

    @contextmanager
    def around() -> Iterator[None]:
        reset_queries()  # with DEBUG they are kept, and a worker would keep them for ever
        close_old_connections()
        try:
            if atomic is None:
                yield
            else:
                with transaction.atomic(using=atomic):
                    yield
        finally:
            close_old_connections()

    return within(handler, around)
