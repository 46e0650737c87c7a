"""The admin page: see and steer a cluster of nsqds from a browser. Needs the extra ``admin``.

``settings`` are what it may do and where it looks; ``asking`` asks many servers at once and
``cluster`` knows which ones there are; ``merging`` makes sums, ``collector`` and ``history``
keep numbers fresh while somebody looks. ``original_api`` answers as nsqadmin does, ``live_api`` is
what the pages ask, ``actions``, ``publishing`` and ``peeking`` change things, ``guard`` decides who
may. ``app`` puts it together, ``server`` runs it. ``templates`` and ``static`` are the pages.
"""

from nsqclient.admin.settings import AdminSettings

__all__ = ["AdminSettings"]
