"""Chaos with a ledger: a cluster in trouble, and the proof of what was lost.

``python -m tests.chaos`` (``make chaos``) runs producers and consumers in processes of their own
against three real nsqds and two nsqlookupds, while a seeded schedule hurts all of them.
``schedule`` says what happens when, ``cluster`` does it, ``producing`` and ``consuming`` are the
programs under test, ``ledger`` and ``record`` keep what they did, ``watch`` looks for consumers
that are stuck, ``verdict`` judges, ``run`` is one run from start to end.
"""
