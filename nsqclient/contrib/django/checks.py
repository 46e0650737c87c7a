"""The system checks: ``manage.py check`` and every command say what is wrong with NSQCLIENT."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error

from nsqclient.contrib.settings import find_problems

#: Kind of problem -> id of the check, documented in docs/topics/django.rst.
IDS = {
    "shape": "nsqclient.E001",
    "key": "nsqclient.E002",
    "addresses": "nsqclient.E003",
    "options": "nsqclient.E004",
    "producer": "nsqclient.E005",
}


def check_settings(app_configs: Any = None, **_rest: Any) -> list[CheckMessage]:
    """Check the setting NSQCLIENT. No network: a server that is down is no wrong setting."""
    mapping = getattr(settings, "NSQCLIENT", None)
    if mapping is None:
        return [Error(
            "the setting NSQCLIENT is missing",
            hint='write NSQCLIENT = {"NSQD_TCP_ADDRESSES": ["127.0.0.1:4150"]}', id=IDS["shape"],
        )]
    return [
        Error(problem.text, hint=problem.hint, id=IDS[problem.code])
        for problem in find_problems(mapping)
    ]
