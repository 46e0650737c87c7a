"""Chaos with a ledger: a cluster under faults, and a count of lost messages.

``make hard NAME=chaos`` runs producers and consumers in processes of their own against three real
nsqds and two nsqlookupds, while a seeded schedule injects faults. ``schedule`` lists the faults,
``cluster`` performs them, ``producing`` and ``consuming`` are the programs under test, ``ledger``
and ``record`` note publishes and deliveries, ``watch`` looks for consumers that are stuck,
``result`` counts the losses, ``run`` is one run from start to end.

``worker``, ``jobs`` and ``outbox`` are further scenarios. ``__main__`` runs every scenario, and all
share the ledger and the result: a stored message that was not handled is lost.
"""
