"""The admin page: show and change a cluster of nsqds from a browser. Needs the extra ``admin``.

``settings`` are its servers and permissions; ``nsqclient.cluster.cluster`` asks the servers.
``aggregate`` makes sums; ``collector`` and ``overview`` keep numbers and rates fresh while a page
is open. ``nsqadmin_api`` answers as nsqadmin does, ``ui_api`` serves the pages, and ``actions_api``
acts for them with ``messages``. ``access_control`` checks permissions. ``app`` is the
WSGI application and its server; ``templates`` and ``static`` are the pages.
"""

from nsqclient.admin.settings import AdminSettings

__all__ = ["AdminSettings"]
