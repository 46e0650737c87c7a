"""nsqclient: the NSQ client for blocking Python code.

This module only re-exports names. Each is imported on first use, so that the commands, and pytest
without the fixtures, load no more than they need.
``docs/index.rst`` is the manual.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nsqclient.version import __version__ as __version__

if TYPE_CHECKING:  # "as" tells type checkers that this module exports the names
    from nsqclient.config import Config as Config
    from nsqclient.connection.connection import Connection as Connection
    from nsqclient.consumer.batch import BatchHandler as BatchHandler
    from nsqclient.consumer.consumer import Consumer as Consumer
    from nsqclient.dead_letters import (
        DeadLetter as DeadLetter, DeadLetterDirectory as DeadLetterDirectory,
        DeadLetterTopic as DeadLetterTopic,
    )
    from nsqclient.consumer.middleware import Handling as Handling
    from nsqclient.consumer.retry import Retry as Retry, RetryTable as RetryTable
    from nsqclient.consumer.stats import (
        ConnectionStats as ConnectionStats, ConsumerStats as ConsumerStats,
        DrainReport as DrainReport, StopReport as StopReport,
    )
    from nsqclient.errors import (
        AlreadyRespondedError as AlreadyRespondedError, ClosedError as ClosedError,
        ConfigError as ConfigError, ConnectError as ConnectError,
        ConnectionLostError as ConnectionLostError, DiscoveryError as DiscoveryError,
        InvalidChannelError as InvalidChannelError, InvalidMessageError as InvalidMessageError,
        InvalidTopicError as InvalidTopicError, LocalProtocolError as LocalProtocolError,
        NegotiationError as NegotiationError, NotNSQError as NotNSQError,
        NSQConnectionError as NSQConnectionError, NSQError as NSQError,
        NSQHTTPError as NSQHTTPError, OrderError as OrderError, PartitionError as PartitionError,
        PublishError as PublishError, PublishNotSentError as PublishNotSentError,
        PublishRejectedError as PublishRejectedError, PublishUnknownError as PublishUnknownError,
        ReentrantCallError as ReentrantCallError, RemoteProtocolError as RemoteProtocolError,
        ServerError as ServerError, TLSError as TLSError, WriteTimeoutError as WriteTimeoutError,
    )
    from nsqclient.message import GiveUp as GiveUp, Message as Message, Requeue as Requeue
    from nsqclient.producer.producer import Producer as Producer
    from nsqclient.producer.stats import ProducerStats as ProducerStats
    from nsqclient.runtime.stats import Health as Health
    from nsqclient.worker.middleware import (
        LogContext as LogContext, RateLimit as RateLimit, TimeLimit as TimeLimit,
    )
    from nsqclient.worker.registry import handler as handler

#: module -> the public names that it defines.
_DEFINED_IN = {
    "config": "Config",
    "connection.connection": "Connection",
    "consumer.batch": "BatchHandler",
    "consumer.consumer": "Consumer",
    "dead_letters": "DeadLetter DeadLetterDirectory DeadLetterTopic",
    "consumer.middleware": "Handling",
    "consumer.retry": "Retry RetryTable",
    "consumer.stats": "ConnectionStats ConsumerStats DrainReport StopReport",
    "errors":
        "AlreadyRespondedError ClosedError ConfigError ConnectError ConnectionLostError "
        "DiscoveryError InvalidChannelError InvalidMessageError InvalidTopicError "
        "LocalProtocolError NegotiationError NotNSQError NSQConnectionError NSQError NSQHTTPError "
        "OrderError PartitionError PublishError PublishNotSentError PublishRejectedError "
        "PublishUnknownError ReentrantCallError RemoteProtocolError ServerError TLSError "
        "WriteTimeoutError",
    "message": "GiveUp Message Requeue",
    "producer.producer": "Producer",
    "producer.stats": "ProducerStats",
    "runtime.stats": "Health",
    "worker.middleware": "LogContext RateLimit TimeLimit",
    "worker.registry": "handler",
}
#: Modules that can be used after "import nsqclient". They are imported on first use, too.
_MODULES = {module.partition(".")[0] for module in _DEFINED_IN} | {
    "discovery", "http", "protocol", "runtime",
}
_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names.split()}
#: A literal list, because type checkers read it.
__all__ = [
    "AlreadyRespondedError", "BatchHandler", "ClosedError", "Config", "ConfigError",
    "ConnectError", "Connection", "ConnectionLostError", "ConnectionStats", "Consumer",
    "ConsumerStats", "DeadLetter", "DeadLetterDirectory", "DeadLetterTopic", "DiscoveryError",
    "DrainReport", "GiveUp", "Handling", "Health", "InvalidChannelError", "InvalidMessageError",
    "InvalidTopicError", "LocalProtocolError", "LogContext", "Message", "NSQConnectionError",
    "NSQError", "NSQHTTPError", "NegotiationError", "NotNSQError", "OrderError", "PartitionError",
    "Producer", "ProducerStats", "PublishError", "PublishNotSentError", "PublishRejectedError",
    "PublishUnknownError", "RateLimit", "ReentrantCallError", "RemoteProtocolError", "Requeue",
    "Retry", "RetryTable", "ServerError", "StopReport", "TLSError", "TimeLimit",
    "WriteTimeoutError", "__version__", "handler",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

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
