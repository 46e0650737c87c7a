"""The worker: one command that runs registered handlers until a signal.

``registry`` keeps what ``@nsqclient.handler`` registers, ``loading`` imports handlers by name,
``group`` creates their consumers, ``runner`` runs them in this process, and ``supervisor`` in
several. The command line, Django and Flask call ``runner``.
"""
