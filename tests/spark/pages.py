"""Runs the programs of the pages on Spark, on a cluster that stands for the usual one."""

import json
from typing import Any

import nsqclient.spark

COUNT = 100
#: The messages of the cluster's topics.
ORDERS = [
    json.dumps({"id": number, "state": "paid" if number % 2 else "open"}).encode()
    for number in range(COUNT)
]


def run(spark: Any, cluster: Any, text: str, **names: Any) -> dict[str, Any]:
    """Run a block in the session until its queries end; return its names."""
    for usual, here in {
        **cluster[1], 'processingTime="30 seconds"': "availableNow=True",
        'orders-checkpoint")': 'orders-checkpoint", available_now=True)',
        "nsqclient.spark.print_progress(": "progress = nsqclient.spark.print_progress(",
    }.items():
        text = text.replace(usual, here)
    scope = {"spark": spark, "nsqclient": nsqclient, **names}
    exec(compile(text, "the page", "exec"), scope)
    if "query" in scope:
        scope["query"].awaitTermination()
    if "progress" in scope:
        scope["spark"].streams.removeListener(scope["progress"])
    return scope
