"""The application in Django's registry, and the system check of the setting NSQCLIENT."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.signals import setting_changed

from nsqclient.contrib.django import forget_producer
from nsqclient.contrib.settings import Settings
from nsqclient.errors import ConfigError


def check_settings(app_configs: Any = None, **_rest: Any) -> list[CheckMessage]:
    try:
        Settings.read(getattr(settings, "NSQCLIENT", None))
    except ConfigError as exc:
        return [Error(str(exc), id="nsqclient.E001")]
    return []


class NSQClientConfig(AppConfig):
    name: str = "nsqclient.contrib.django"
    label: str = "nsqclient"
    verbose_name: str = "NSQ"

    def ready(self) -> None:
        register(check_settings)
        setting_changed.connect(_on_setting_changed, dispatch_uid="nsqclient")


def _on_setting_changed(*, setting: str, **_rest: Any) -> None:
    if setting == "NSQCLIENT":
        forget_producer()
