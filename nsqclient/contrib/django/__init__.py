"""nsqclient in Django projects: ``"nsqclient.contrib.django"`` in INSTALLED_APPS.

The manual is ``docs/topics/django.rst``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.apps import apps as applications  # this package has a module "apps"
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone

from nsqclient.contrib.settings import ProcessProducer, Settings
from nsqclient.errors import ConfigError, InvalidMessageError
from nsqclient.partitioned.producer import Producer
from nsqclient.protocol.commands import NO_JSON, Body, check_body, check_delay, chosen_body
from nsqclient.protocol.names import check_topic
from nsqclient.runtime.deadline import Duration, to_seconds

__all__ = ["get_producer", "publish", "publish_in_transaction", "publish_json",
           "publish_on_commit"]


def read_settings() -> Settings:
    """Read the setting NSQCLIENT. Raises ImproperlyConfigured."""
    try:
        return Settings.read(getattr(settings, "NSQCLIENT", None))
    except ConfigError as exc:
        raise ImproperlyConfigured(str(exc)) from exc


_process = ProcessProducer(lambda: read_settings().make_producer())


def get_producer() -> Producer:
    """Return the producer of this process. It is flushed at exit: do not close it. Threads: any.

    Raises ImproperlyConfigured if the setting NSQCLIENT is missing or wrong.
    """
    return _process.get()


def forget_producer() -> None:
    """Close the producer, for tests that override settings. Blocks: 5 s at most."""
    _process.close()


def publish(
    topic: str, body: Body, defer: Duration | None = None, timeout: Duration | None = None
) -> None:
    """Store one message with the producer of this process, at once.

    An open transaction does not delay it: see :func:`publish_on_commit`. Arguments, errors and
    timeouts: as :meth:`nsqclient.Producer.publish`.
    """
    get_producer().publish(topic, body, defer, timeout)


def publish_json(
    topic: str, value: Any, defer: Duration | None = None, timeout: Duration | None = None
) -> None:
    """Store one message whose body is ``value`` as JSON, at once; otherwise as :func:`publish`."""
    get_producer().publish_json(topic, value, defer, timeout)


def publish_on_commit(
    topic: str,
    body: Body | None = None,
    defer: Duration | None = None,
    timeout: Duration | None = None,
    *,
    json: Any = NO_JSON,
    using: str | None = None,
    robust: bool = False,
) -> None:
    """Store one message when the open transaction commits; without a transaction at once.

    After a rollback nothing is published. Topic and body are checked before the commit.

    Args:
        json: a value whose JSON is the body, instead of ``body``.
        using: alias of the database; None: the default one.
        robust: if the publish fails after the commit, log its error instead of raising it. In both
            cases the data is stored, and the message is not, or its outcome is unknown.

    Raises:
        InvalidTopicError, InvalidMessageError: nsqd would reject it.
        ImproperlyConfigured: the setting NSQCLIENT is missing or wrong.
    """
    producer = get_producer()
    check_topic(topic)
    # A copy, because a bytearray may change before the commit.
    kept = bytes(check_body(chosen_body(body, json), producer.config.nsqd_max_msg_size))
    transaction.on_commit(
        lambda: publish(topic, kept, defer, timeout), using=using, robust=robust
    )


def publish_in_transaction(
    topic: str,
    body: Body | None = None,
    defer: Duration | None = None,
    *,
    json: Any = NO_JSON,
    key: str | None = None,
    using: str | None = None,
) -> None:
    """Store one message in the outbox, in the open transaction; a relay publishes it.

    After the commit the message is published at least once, after a rollback never. Needs
    ``"nsqclient.contrib.django.outbox"`` in INSTALLED_APPS, and a running ``manage.py nsq_relay``.
    Threads: any.

    Args:
        json: a value whose JSON is the body, instead of ``body``.
        defer: seconds from now until it is delivered, up to ``nsqd_max_req_timeout``.
        key: messages of a topic with the same key are published in the order of these calls; up to
            255 characters. Not for deferred messages.
        using: alias of the database; None: the default one.

    Blocks: for one INSERT, without nsqd.

    Raises:
        InvalidTopicError, InvalidMessageError: nsqd would reject it, or the key is invalid.
        TransactionManagementError: no transaction is open.
        ImproperlyConfigured: the app is not installed, or the setting NSQCLIENT is wrong.
    """
    config = get_producer().config
    check_topic(topic)
    data = check_body(chosen_body(body, json), config.nsqd_max_msg_size)
    deliver_at = None
    if defer is not None:
        seconds = to_seconds(defer, "defer")
        check_delay(round(seconds * 1000), round(config.nsqd_max_req_timeout * 1000))
        deliver_at = timezone.now() + timedelta(seconds=seconds)
    _check_key(key, defer)
    try:
        # Models cannot be imported before the applications are loaded.
        model = applications.get_model("nsqclient_outbox", "OutboxMessage")
    except LookupError as exc:
        raise ImproperlyConfigured(
            'publish_in_transaction() needs "nsqclient.contrib.django.outbox" in INSTALLED_APPS,'
            " and manage.py migrate") from exc
    alias = DEFAULT_DB_ALIAS if using is None else using
    connection = connections[alias]
    if not connection.in_atomic_block and connection.get_autocommit():
        raise transaction.TransactionManagementError(
            "publish_in_transaction() needs an open transaction:"
            " write it into a block of transaction.atomic(), with the changes that belong to it")
    model.objects.using(alias).create(
        topic=topic, key=key or "", body=data, deliver_at=deliver_at)


def _check_key(key: object, defer: Duration | None) -> None:
    if key is None:
        return
    if not isinstance(key, str) or not 0 < len(key) <= 255 or "\0" in key:
        raise InvalidMessageError(f"key must be a text of 1 to 255 characters, not {key!r:.80}")
    if defer is not None:
        raise InvalidMessageError("a deferred message has no order: leave out key or defer")
