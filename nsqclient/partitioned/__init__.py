"""Consumer and Producer for partitioned NSQ as well as for the stock one.

Both are classes with further arguments, in a layer above the stock classes.
``docs/topics/partitions.rst`` is the manual; ``docs/topics/architecture.rst`` lists the methods of
the stock classes that are overridden here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqclient.partitioned.consumer.consumer import Consumer as Consumer
    from nsqclient.partitioned.consumer.processor import BlockedAction as BlockedAction
    from nsqclient.partitioned.producer.options import Outgoing as Outgoing
    from nsqclient.partitioned.producer.producer import Producer as Producer
    from nsqclient.protocol.partitioned.header_filter import HeaderFilter as HeaderFilter
    from nsqclient.protocol.partitioned.start_position import StartPosition as StartPosition

__all__ = ["BlockedAction", "Consumer", "HeaderFilter", "Outgoing", "Producer", "StartPosition"]

#: Name -> the module that defines it; imported with its first use.
_DEFINED_IN = {
    "BlockedAction": "partitioned.consumer.processor",
    "Consumer": "partitioned.consumer.consumer",
    "HeaderFilter": "protocol.partitioned.header_filter",
    "Outgoing": "partitioned.producer.options",
    "Producer": "partitioned.producer.producer",
    "StartPosition": "protocol.partitioned.start_position",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _DEFINED_IN:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"nsqclient.{_DEFINED_IN[name]}"), name)
        globals()[name] = value
        return value
