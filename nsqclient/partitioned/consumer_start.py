"""``ChannelStarts``: moves the channel of each partition to its start position, once.

SUB_ADVANCED takes a start position too, but ignores the partition next to it, and an ordered topic
refuses the command. So nsqd's HTTP API is used, before the subscription.
"""

from __future__ import annotations


from nsqclient.consumer.context import ConsumerContext
from nsqclient.log_records import log_fields
from nsqclient.partitioned.consumer_options import PartitionOptions
from nsqclient.display import counted
from nsqclient.errors import (
    ConnectError,
    NSQHTTPError,
    NSQHTTPStatusError,
    as_cause,
    server_error,
)
from nsqclient.partitioned.lookup_table import Endpoint
from nsqclient.partitioned.retry_policy import LEADER_CODES
from nsqclient.partitioned.start_position import StartPosition
from nsqclient.runtime.lock import Lock

#: Seconds for each of the requests.
_TIMEOUT = 3.0
#: The answer of nsqd where a partition has no messages. Its channels are at its start then.
_NO_MESSAGES = "commit log end of file"


class ChannelStarts:
    """Where the partitions of one consumer begin, and which of them have begun. Threads: any."""

    def __init__(self, context: ConsumerContext, options: PartitionOptions) -> None:
        self._topic, self._channel = context.topic, context.channel
        self._options = options
        self._config = context.config
        self._log = context.log
        self._lock = Lock()
        self._begun: set[int] = set()  # partitions; guarded by _lock

    def apply(self, place: Endpoint, http_address: str) -> None:
        """Move the channel of a partition, where that was asked for and not done before.

        A channel that has consumers is left where it is: nsqd, too, takes the start of the first
        consumer alone. Blocks: three requests.

        Raises:
            ServerError: this nsqd does not lead the partition.
            ConnectError: the position could not be set, with the reason.
        """
        assert place.partition is not None
        start = self._options.start_of(place.partition)
        with self._lock:
            if start is None or place.partition in self._begun:
                return
        try:
            self._move(place, http_address, start)
        except NSQHTTPError as exc:
            if isinstance(exc, NSQHTTPStatusError) and exc.message in LEADER_CODES:
                raise server_error(exc.message.encode()) from as_cause(exc)
            raise ConnectError(
                place.address, f"partition {place.partition} could not be set to {start} through"
                f" its HTTP API {http_address}: {exc.reason}"
            ) from as_cause(exc)
        with self._lock:
            self._begun.add(place.partition)

    def _move(self, place: Endpoint, http_address: str, start: StartPosition) -> None:
        # Here, since requests takes longer to import than the rest of the library.
        from nsqclient.http.nsqd import NsqdHTTP

        assert place.partition is not None
        where = (self._topic, place.partition, self._channel)
        fields = log_fields(nsqd=place.address)
        with NsqdHTTP(
            http_address, self._config, connect_timeout=self._config.dial_timeout, timeout=_TIMEOUT
        ) as client:
            client.create_partition_channel(*where)
            consumers = client.count_partition_consumers(*where)
            if consumers:
                self._log.warning(
                    "%s: the start position %s is not applied: the channel has %s, and nsqd takes"
                    " the position of the first one", place, start, counted(consumers, "consumer"),
                    extra=fields,
                )
                return
            try:
                client.set_channel_offset(*where, str(start))
            except NSQHTTPStatusError as exc:
                if exc.message != _NO_MESSAGES:
                    raise
                self._log.info("%s: no messages yet: the channel starts with the first one", place,
                               extra=fields)
                return
        self._log.info("%s: the channel starts at %s", place, start, extra=fields)
