"""The transactional outbox: messages that are stored with the data, and published by a relay.

The manual is ``docs/topics/django.rst``.
"""
