"""The worker: one command that runs registered handlers until a signal.

The command line, Django and Flask call ``runner``.
"""
