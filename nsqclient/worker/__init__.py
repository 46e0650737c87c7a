"""The worker: one command that runs registered handlers until a signal.

``registry`` keeps what ``@nsqclient.handler`` registers, ``loading`` imports handlers by name,
``group`` makes their consumers, ``runner`` runs them in this process, ``supervisor`` in several,
and again when code changes. The command line, Django and Flask call ``runner``.
"""
