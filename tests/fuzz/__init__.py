"""Mutated streams against both protocol cores: ``python -m tests.fuzz``, fixed seed.

Whatever comes, a core gives events or one of the documented errors, in bounded memory.
"""
