"""The application's entry in Django's registry."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.signals import setting_changed

from nsqclient.contrib.django.checks import check_settings
from nsqclient.contrib.django.publishing import forget_producer


class NSQClientConfig(AppConfig):
    """Registers the system checks, and follows settings that tests override."""

    name = "nsqclient.contrib.django"
    label = "nsqclient"
    verbose_name = "NSQ"

    def ready(self) -> None:
        """For Django: called once, when all applications are loaded."""
        checks.register(check_settings)
        setting_changed.connect(_on_setting_changed, dispatch_uid="nsqclient")


def _on_setting_changed(*, setting: str, **_rest: Any) -> None:
    if setting == "NSQCLIENT":
        forget_producer()
