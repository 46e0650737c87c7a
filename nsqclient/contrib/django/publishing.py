"""Publishing from views and models: one producer for each process, and after the commit."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from nsqclient.contrib.process_producer import ProcessProducer
from nsqclient.contrib.settings import Settings
from nsqclient.errors import ConfigError
from nsqclient.producer import Producer
from nsqclient.protocol.commands import check_body
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.deadline import Duration


def read_settings() -> Settings:
    """Read the setting NSQCLIENT.

    Raises:
        ImproperlyConfigured: it is missing or wrong.
    """
    try:
        return Settings.read(getattr(settings, "NSQCLIENT", None))
    except ConfigError as exc:
        raise ImproperlyConfigured(str(exc)) from exc


_process = ProcessProducer(lambda: read_settings().make_producer())


def get_producer() -> Producer:
    """Return the producer of this process; the first call makes it, and it connects by itself.

    Never close it: it ends with the process. Threads: any.

    Raises:
        ImproperlyConfigured: the setting NSQCLIENT is missing or wrong.
    """
    return _process.get()


def forget_producer() -> None:
    """Close the producer of this process; the next publish makes one with the settings of then.

    For tests that override settings. Blocks: 5 s at most.
    """
    _process.close()


def publish(
    topic: str, body: bytes, defer: Duration | None = None, timeout: Duration | None = None
) -> None:
    """Store one message with the producer of this process, at once.

    A transaction that is open has no say: see :func:`publish_on_commit`. Arguments, errors and
    time are those of :meth:`nsqclient.Producer.publish`.
    """
    get_producer().publish(topic, body, defer, timeout)


def publish_on_commit(
    topic: str,
    body: bytes,
    defer: Duration | None = None,
    timeout: Duration | None = None,
    *,
    using: str | None = None,
    robust: bool = False,
) -> None:
    """Store one message when the transaction that is open commits; outside of one at once.

    After a rollback nothing is published. Topic and body are checked now, so that a commit is
    never followed by a refusal that could be foreseen.

    Args:
        using: alias of the database; None: the default one.
        robust: log a publish that fails, instead of raising after the commit what
            :meth:`nsqclient.Producer.publish` raises: then the data is stored and the message is
            not, or nobody knows. Where neither may happen, write the message into a table in the
            same transaction and publish from there.

    Raises:
        InvalidTopicError, InvalidMessageError: nsqd would refuse it.
        ImproperlyConfigured: the setting NSQCLIENT is missing or wrong.
    """
    producer = get_producer()
    check_topic(topic)
    # A copy: a bytearray may change until the commit.
    kept = bytes(check_body(body, producer.config.nsqd_max_msg_size))
    transaction.on_commit(
        lambda: publish(topic, kept, defer, timeout), using=using, robust=robust
    )
