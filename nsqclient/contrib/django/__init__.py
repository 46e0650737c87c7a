"""nsqclient in Django projects: ``"nsqclient.contrib.django"`` in INSTALLED_APPS.

``publishing`` has the producer of the process, ``publish_on_commit`` and
``publish_in_transaction``, ``apps`` the system check of the setting ``NSQCLIENT``, ``management``
the command ``nsq_consume``, and ``outbox`` is an app of its own. The page
``docs/topics/django.rst`` is the manual.
"""

from nsqclient.contrib.django.publishing import (
    get_producer, publish, publish_in_transaction, publish_json, publish_on_commit,
)

__all__ = ["get_producer", "publish", "publish_in_transaction", "publish_json",
           "publish_on_commit"]
