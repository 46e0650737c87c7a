"""What nsqds and nsqlookupds say of the channel that the source reads."""

from __future__ import annotations

import logging

from nsqclient.discovery import lookup_topic
from nsqclient.errors import NSQError
from nsqclient.http.channel_depth import DepthQuery
from nsqclient.partitioned.lookup_table import TopicRoutes
from nsqclient.spark.options import ReadOptions

logger: logging.Logger = logging.getLogger("nsqclient.spark")


def find_partitions(options: ReadOptions) -> TopicRoutes:
    """Return what an nsqlookupd says of the partitions of the topic; empty for one without any.

    Blocks: ``lookupd_poll_timeout`` for each nsqlookupd that does not answer.
    """
    for lookupd in options.lookupd:
        try:
            found = lookup_topic(lookupd, options.topic, "r", options.config).routes
        except NSQError as exc:
            logger.debug("no partitions: %s", exc)
            continue
        if found.partitions:
            return found
    return TopicRoutes()


def make_query(options: ReadOptions) -> DepthQuery:
    """Return what asks every nsqd, again and again."""
    return DepthQuery(
        options.topic, options.channel, options.config, nsqds=options.nsqd,
        nsqd_http=options.nsqd_http, lookupds=options.lookupd,
    )
