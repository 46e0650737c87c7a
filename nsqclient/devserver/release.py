"""Which release of NSQ the embedded servers stand in for.

Clients read this version in IDENTIFY, ``/info`` and ``/lookup``, and some parse it; the version
of nsqclient itself would mislead them.
"""

from nsqclient.protocol.server_identify import NSQD_VERSION

NSQ_VERSION = NSQD_VERSION
