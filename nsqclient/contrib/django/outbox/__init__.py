"""The transactional outbox: messages that are stored with the data, and published by a relay.

For INSTALLED_APPS, beside ``nsqclient.contrib.django``. ``models`` has the table, ``batch``
publishes some of its rows, ``relay`` does so until it is stopped, ``metrics`` counts, and
``management`` has the command ``nsq_relay``. The page ``docs/topics/django.rst`` is the manual.
"""
