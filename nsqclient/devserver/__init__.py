"""An honest nsqd and nsqlookupd in Python, for first steps and for users' tests.

``with Nsqd() as nsqd:`` starts one on free ports. What it does not do stands at the top of
``docs/topics/devserver.rst``.
"""

from nsqclient.devserver.nsqd import Nsqd
from nsqclient.devserver.nsqlookupd import Nsqlookupd

__all__ = ["Nsqd", "Nsqlookupd"]
