"""The transactional outbox: messages that are stored with the data, and published by a relay.

An app for INSTALLED_APPS, beside ``nsqclient.contrib.django``: ``models`` has the table, ``relay``
and the command ``nsq_relay`` publish its rows. The manual is ``docs/topics/django.rst``.
"""
