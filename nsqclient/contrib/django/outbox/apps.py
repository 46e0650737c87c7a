"""The application's entry in Django's registry."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """An app of its own: a project without an outbox gets no table."""

    name = "nsqclient.contrib.django.outbox"
    label = "nsqclient_outbox"
    verbose_name = "NSQ outbox"
    default_auto_field = "django.db.models.BigAutoField"
