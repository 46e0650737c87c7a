"""Producers of an embedded cluster of partitioned NSQ, for fixtures."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from nsqclient import Config
from nsqclient.devserver import PartitionedCluster
from nsqclient.partitioned import Producer


@contextlib.contextmanager
def producers(cluster: PartitionedCluster, default: Config) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []

    def produce(config: Config = default, **options: Any) -> Producer:
        options.setdefault("lookupd_http_addresses", cluster.lookupd_http_addresses)
        made.append(Producer(config=config, **options))
        return made[-1]

    yield produce
    for producer in made:
        producer.close(5.0)
