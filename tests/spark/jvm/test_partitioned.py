"""Topics of partitioned NSQ, read by Spark's own calls from an embedded cluster."""

from __future__ import annotations

import pytest

from nsqclient.devserver import PartitionedCluster


@pytest.mark.long
@pytest.mark.parametrize("ordered", [False, True])
def test_two_runs_read_every_partition_once_although_a_leader_moves(spark, tmp_path, ordered):
    """The rows name their partition; the ids of a partition grow in the order of its messages."""
    with PartitionedCluster(2, 2, msg_timeout=2.0) as cluster:
        cluster.create_topic("t", 4, replicas=2, ordered=ordered, channels=["c"])
        frame = spark.readStream.format("nsq").options(
            topic="t", channel="c", lookupd=",".join(cluster.lookupd_http_addresses),
            storage=str(tmp_path / "log"), lookupd_poll_interval="100ms", rollIntervalMs="50",
        ).load()
        for run in range(2):
            for number in range(10 * run, 10 * run + 10):
                for partition in range(4):
                    cluster.publish("t", partition, b"%d" % number)
            query = (
                frame.writeStream.format("parquet").trigger(availableNow=True)
                .option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            )
            assert query.awaitTermination(120)
            cluster.wait_until_empty("t", "c", 20.0)
            cluster.move_leader("t", 0)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("nsqd", "message_id").collect()
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.nsqd, []).append(int(bytes(row.body)))
    assert found == {f"partition-{partition}": list(range(20)) for partition in range(4)}
