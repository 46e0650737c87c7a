"""Chaos with a ledger: a cluster under faults, and a count of lost messages.

A stored message that was not handled is lost. ``__main__`` runs every scenario: ``make hard
NAME=chaos``.
"""
