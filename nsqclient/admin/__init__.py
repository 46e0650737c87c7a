"""The admin page: show and change a cluster of nsqds from a browser. Needs the extra ``admin``.

``settings`` are its servers and permissions. ``fanout`` sends requests to many servers at once, and
``cluster`` finds the nsqds. ``aggregate`` makes sums; ``collector`` and ``overview`` keep numbers
and rates fresh while a page is open. ``nsqadmin_api`` answers as nsqadmin does, ``ui_api`` serves
the pages; ``actions`` and ``message_peeker`` are what they call. ``access_control`` checks
permissions. ``steering_api`` acts on several topics at once, replays dead letters, and runs the
doctor. ``app`` is the WSGI application, ``server`` and ``wsgi`` run it; ``templates`` and
``static`` are the pages.
"""

from nsqclient.admin.settings import AdminSettings

__all__ = ["AdminSettings"]
