"""The application's entry in Django's registry."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """A separate app, so that a project without an outbox gets no table."""

    name: str = "nsqclient.contrib.django.outbox"
    label: str = "nsqclient_outbox"
    verbose_name: str = "NSQ outbox"
    default_auto_field: str = "django.db.models.BigAutoField"
