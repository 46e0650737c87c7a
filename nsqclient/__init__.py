"""nsqclient: the NSQ client for blocking Python code.

This is the front door; it only re-exports. A name is imported with its first use, so that the
commands, and pytest in suites that do not use the fixtures, load no more than they need.
``docs/index.rst`` is the manual.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nsqclient.version import __version__

if TYPE_CHECKING:
    from nsqclient.config import Config
    from nsqclient.connection.connection import Connection
    from nsqclient.consumer.batch import BatchHandler
    from nsqclient.consumer.consumer import Consumer
    from nsqclient.consumer.dead_letters import (
        DeadLetter, DeadLetterDirectory, DeadLetterTopic,
    )
    from nsqclient.consumer.middleware import Handling
    from nsqclient.partitioned.consumer_processor import BlockedAction
    from nsqclient.consumer.retry import Retry, RetryTable
    from nsqclient.consumer.stats import (
        ConnectionStats,
        ConsumerStats,
        DrainReport,
        Health,
        StopReport,
    )
    from nsqclient.errors import (
        AlreadyRespondedError,
        ClosedError,
        ConfigError,
        ConnectError,
        ConnectionLostError,
        DiscoveryError,
        InvalidChannelError,
        InvalidMessageError,
        InvalidTopicError,
        LocalProtocolError,
        NegotiationError,
        NotNSQError,
        NSQConnectionError,
        NSQError,
        NSQHTTPError,
        OrderError,
        PartitionError,
        PublishError,
        PublishNotSentError,
        PublishRejectedError,
        PublishUnknownError,
        ReentrantCallError,
        RemoteProtocolError,
        ServerError,
        TLSError,
        WriteTimeoutError,
    )
    from nsqclient.message import GiveUp, Message, Requeue
    from nsqclient.partitioned.header_filter import HeaderFilter
    from nsqclient.partitioned.producer_options import Outgoing
    from nsqclient.partitioned.start_position import StartPosition
    from nsqclient.producer.producer import Producer
    from nsqclient.producer.stats import ProducerStats
    from nsqclient.worker.registry import handler

__all__ = [
    "AlreadyRespondedError",
    "BatchHandler",
    "BlockedAction",
    "ClosedError",
    "Config",
    "ConfigError",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "ConnectionStats",
    "Consumer",
    "ConsumerStats",
    "DeadLetter",
    "DeadLetterDirectory",
    "DeadLetterTopic",
    "DiscoveryError",
    "DrainReport",
    "GiveUp",
    "Handling",
    "HeaderFilter",
    "Health",
    "InvalidChannelError",
    "InvalidMessageError",
    "InvalidTopicError",
    "LocalProtocolError",
    "Message",
    "NSQConnectionError",
    "NSQError",
    "NSQHTTPError",
    "NegotiationError",
    "NotNSQError",
    "OrderError",
    "Outgoing",
    "PartitionError",
    "Producer",
    "ProducerStats",
    "PublishError",
    "PublishNotSentError",
    "PublishRejectedError",
    "PublishUnknownError",
    "ReentrantCallError",
    "RemoteProtocolError",
    "Requeue",
    "Retry",
    "RetryTable",
    "ServerError",
    "StartPosition",
    "StopReport",
    "TLSError",
    "WriteTimeoutError",
    "__version__",
    "handler",
]

#: module -> the public names that it defines.
_DEFINED_IN = {
    "config": "Config",
    "connection.connection": "Connection",
    "consumer.batch": "BatchHandler",
    "consumer.consumer": "Consumer",
    "consumer.dead_letters": "DeadLetter DeadLetterDirectory DeadLetterTopic",
    "consumer.middleware": "Handling",
    "consumer.retry": "Retry RetryTable",
    "consumer.stats": "ConnectionStats ConsumerStats DrainReport Health StopReport",
    "errors":
        "AlreadyRespondedError ClosedError ConfigError ConnectError ConnectionLostError "
        "DiscoveryError InvalidChannelError InvalidMessageError InvalidTopicError "
        "LocalProtocolError NegotiationError NotNSQError NSQConnectionError NSQError NSQHTTPError "
        "OrderError PartitionError PublishError PublishNotSentError PublishRejectedError "
        "PublishUnknownError ReentrantCallError RemoteProtocolError ServerError TLSError "
        "WriteTimeoutError",
    "message": "GiveUp Message Requeue",
    "partitioned.consumer_processor": "BlockedAction",
    "partitioned.header_filter": "HeaderFilter",
    "partitioned.producer_options": "Outgoing",
    "partitioned.start_position": "StartPosition",
    "producer.producer": "Producer",
    "producer.stats": "ProducerStats",
    "worker.registry": "handler",
}
#: Modules that are there after "import nsqclient", with their first use too.
_MODULES = {module.partition(".")[0] for module in _DEFINED_IN} | {
    "discovery", "hints", "http", "protocol", "runtime",
}
_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name or a module. Source: PEP 562."""
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"nsqclient.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"nsqclient.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
