"""The transactional outbox: messages that are stored with the data, and published by a relay.

For INSTALLED_APPS, beside ``nsqclient.contrib.django``. ``models`` has the table, ``relay``
publishes and deletes its rows until it is stopped, and ``management`` has the command
``nsq_relay``. The page ``docs/topics/django.rst`` is the manual.
"""
