"""Consumer and Producer for partitioned NSQ as well as for the stock one.

``docs/topics/architecture.rst`` lists the methods of the stock classes that are overridden here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqclient.partitioned.consumer import Consumer as Consumer
    from nsqclient.partitioned.ordered import BlockedAction as BlockedAction
    from nsqclient.partitioned.options import Outgoing as Outgoing
    from nsqclient.partitioned.producer import Producer as Producer
    from nsqclient.protocol.partitioned.selection import (
        HeaderFilter as HeaderFilter, StartPosition as StartPosition,
    )

__all__ = ["BlockedAction", "Consumer", "HeaderFilter", "Outgoing", "Producer", "StartPosition"]

#: Name -> the module that defines it; imported with its first use.
_DEFINED_IN = {
    "BlockedAction": "partitioned.ordered",
    "Consumer": "partitioned.consumer",
    "HeaderFilter": "protocol.partitioned.selection",
    "Outgoing": "partitioned.options",
    "Producer": "partitioned.producer",
    "StartPosition": "protocol.partitioned.selection",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _DEFINED_IN:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"nsqclient.{_DEFINED_IN[name]}"), name)
        globals()[name] = value
        return value
