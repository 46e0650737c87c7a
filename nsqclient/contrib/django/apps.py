"""The application's entry in Django's registry, and the system check of the setting NSQCLIENT."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.signals import setting_changed

from nsqclient.contrib.django.publishing import forget_producer
from nsqclient.contrib.settings import find_problems

#: Kind of problem -> id of the check, documented in docs/topics/django.rst.
_IDS = {
    "shape": "nsqclient.E001",
    "key": "nsqclient.E002",
    "addresses": "nsqclient.E003",
    "options": "nsqclient.E004",
    "producer": "nsqclient.E005",
    "middleware": "nsqclient.E006",
}


def check_settings(app_configs: Any = None, **_rest: Any) -> list[CheckMessage]:
    """Check the setting NSQCLIENT, without network, for ``manage.py check``."""
    mapping = getattr(settings, "NSQCLIENT", None)
    if mapping is None:
        return [Error(
            "the setting NSQCLIENT is missing",
            hint='write NSQCLIENT = {"NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"]}', id=_IDS["shape"],
        )]
    return [
        Error(problem.text, hint=problem.hint, id=_IDS[problem.code])
        for problem in find_problems(mapping)
    ]


class NSQClientConfig(AppConfig):
    """Registers the system check, and handles settings that tests override."""

    name: str = "nsqclient.contrib.django"
    label: str = "nsqclient"
    verbose_name: str = "NSQ"

    def ready(self) -> None:
        """For Django: called once, when all applications are loaded."""
        register(check_settings)
        setting_changed.connect(_on_setting_changed, dispatch_uid="nsqclient")


def _on_setting_changed(*, setting: str, **_rest: Any) -> None:
    if setting == "NSQCLIENT":
        forget_producer()
