"""nsqclient: the NSQ client for blocking Python code.

This is the front door; it only re-exports. ``docs/index.rst`` is the manual.
"""

from nsqclient.batch import BatchHandler
from nsqclient.config import Config
from nsqclient.connection import Connection
from nsqclient.consumer import Consumer
from nsqclient.consuming.ordered_handling import Blocked
from nsqclient.consuming.reports import ConsumerStats, Health, StopReport
from nsqclient.deadletter import DeadLetterDirectory, DeadLetterTopic
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
    OrderError,
    PartitionError,
    PublishError,
    PublishNotSent,
    PublishRejected,
    PublishUnknown,
    RemoteProtocolError,
    ServerError,
    TLSError,
)
from nsqclient.message import Message, Requeue
from nsqclient.producer import Producer
from nsqclient.publishing.statistics import ProducerStats
from nsqclient.version import __version__

__all__ = [
    "AlreadyRespondedError",
    "BatchHandler",
    "Blocked",
    "ClosedError",
    "Config",
    "ConfigError",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "Consumer",
    "ConsumerStats",
    "DeadLetterDirectory",
    "DeadLetterTopic",
    "DiscoveryError",
    "Health",
    "InvalidChannelError",
    "InvalidMessageError",
    "InvalidTopicError",
    "LocalProtocolError",
    "Message",
    "NSQConnectionError",
    "NSQError",
    "NegotiationError",
    "NotNSQError",
    "OrderError",
    "PartitionError",
    "Producer",
    "ProducerStats",
    "PublishError",
    "PublishNotSent",
    "PublishRejected",
    "PublishUnknown",
    "RemoteProtocolError",
    "Requeue",
    "ServerError",
    "StopReport",
    "TLSError",
    "__version__",
]
