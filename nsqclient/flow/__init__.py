"""Decisions: how long to wait, how to share RDY, when to back off.

State goes in, actions come out; ``now`` and the random source are arguments. No socket, thread
or clock lives here.
"""
