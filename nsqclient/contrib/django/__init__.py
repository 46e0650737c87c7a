"""nsqclient in Django projects: ``"nsqclient.contrib.django"`` in INSTALLED_APPS.

``publishing`` has the producer of the process and ``publish_on_commit``, ``handlers`` what stands
around each message, ``checks`` the system checks of the setting ``NSQCLIENT``, and ``management``
the command ``nsq_consume``. The page ``docs/topics/django.rst`` is the manual.
"""

from nsqclient.contrib.django.publishing import get_producer, publish, publish_on_commit

__all__ = ["get_producer", "publish", "publish_on_commit"]
