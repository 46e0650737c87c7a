"""Publishing to partitioned NSQ.

``cluster_detector`` finds out whether the cluster is a partitioned one; only then a Producer uses
the rest. ``producer`` chooses the partition of a publish and repeats attempts, ``metadata`` caches
the leaders of the partitions, ``async_publisher`` publishes asynchronously. The connections are
those of the stock producer, :mod:`nsqclient.producer.nodes`.
"""
