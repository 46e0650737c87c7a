"""The admin page: show and change a cluster of nsqds from a browser. Needs the extra ``admin``.

``nsqadmin_api`` answers as nsqadmin does, ``ui_api`` serves the numbers of the pages.
"""

from nsqclient.admin.settings import AdminSettings

__all__ = ["AdminSettings"]
