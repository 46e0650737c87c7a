"""``OutboxMessage``: a message that waits for its relay."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

LONGEST_KEY = 255


class OutboxMessage(models.Model):
    """One message to publish. The row is deleted once nsqd has stored the message.

    Applications may read and delete rows, and set ``retry_at`` to None for an immediate attempt.
    """

    topic: models.CharField[str, str] = models.CharField(max_length=80)
    #: Messages of a topic with the same key are published in order. Empty: no key.
    key: models.CharField[str, str] = models.CharField(
        max_length=LONGEST_KEY, blank=True, default=""
    )
    body: models.BinaryField[bytes, bytes] = models.BinaryField()
    #: Delivery time of a deferred message.
    deliver_at: models.DateTimeField[datetime | None, datetime | None] = models.DateTimeField(
        null=True, blank=True
    )
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        default=timezone.now
    )
    #: Publishes that failed because of this message, the last error, the time of the next attempt.
    failures: models.PositiveIntegerField[int, int] = models.PositiveIntegerField(default=0)
    error: models.TextField[str, str] = models.TextField(blank=True, default="")
    retry_at: models.DateTimeField[datetime | None, datetime | None] = models.DateTimeField(
        null=True, blank=True
    )

    class Meta:
        db_table = "nsqclient_outbox"
        ordering: list[str] = ["id"]
        verbose_name = "outbox message"
        indexes: list[models.Index] = [
            models.Index(fields=["topic", "key", "retry_at"], name="nsqclient_outbox_retry",
                         condition=Q(retry_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"outbox message {self.pk} to {self.topic}"


def due_messages(using: str, now: datetime) -> QuerySet[OutboxMessage]:
    """Return the messages that may be published now, oldest first.

    Leaves out failed messages until their next attempt, and later messages with the same key.
    """
    waiting = OutboxMessage.objects.using(using).filter(retry_at__gt=now)
    same_key = waiting.filter(topic=OuterRef("topic"), key=OuterRef("key"))
    return (
        OutboxMessage.objects.using(using)
        .filter(Q(retry_at__isnull=True) | Q(retry_at__lte=now))
        .filter(Q(key="") | ~Exists(same_key))
        .order_by("id")
    )
