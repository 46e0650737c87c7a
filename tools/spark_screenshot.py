"""Take docs/images/spark-streaming.png: Spark's streaming page while an archive runs.

    python tools/spark_screenshot.py

Needs the extra ``spark``, Java, and Chromium (or CHROMIUM=path).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from nsqclient import Producer
from nsqclient.devserver import Nsqd
from nsqclient.spark.pipelines import archive
from nsqclient.spark.pipelines.sources import open_session

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
IMAGE = Path(__file__).resolve().parent.parent / "docs" / "images" / "spark-streaming.png"
#: Batches to wait for, so that the rates are real, and seconds at most.
BATCHES, LIMIT = 8, 240.0


def publish(address: str, end: threading.Event) -> None:
    """Publish until the end, some hundred messages each time."""
    with Producer([address]) as producer:
        number = 0
        while not end.wait(0.1):
            producer.publish_many("orders", [b"order %d" % n for n in range(number, number + 400)])
            number += 400


def shoot(url: str, image: Path) -> None:
    """Let a headless Chromium draw a page."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--window-size=1400,420", f"--user-data-dir={profile}",
             "--virtual-time-budget=10000", f"--screenshot={image}", url],
            check=True, timeout=180, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )


def main() -> int:
    """Run an archive, look at its page, and stop."""
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    end = threading.Event()
    with tempfile.TemporaryDirectory() as folder, Nsqd() as nsqd:
        publisher = threading.Thread(target=publish, args=(nsqd.tcp_address, end))
        publisher.start()
        spark = open_session("nsqclient spark archive orders", "local[2]", {
            "spark.driver.memory": "1g", "spark.ui.port": "0",
            "spark.ui.showConsoleProgress": "false"})
        try:
            query = archive(
                spark, topic="orders", channel="archive", path=f"{folder}/out",
                checkpoint=f"{folder}/checkpoint", every=1.0, nsqd=nsqd.tcp_address,
                nsqdHttp=nsqd.http_address)
            seen, pause = 0, threading.Event()
            for _ in range(int(LIMIT)):
                seen = len(query.recentProgress)
                if seen >= BATCHES or query.exception() is not None:
                    break
                pause.wait(1.0)
            if seen < BATCHES:
                print(f"only {seen} batches: {query.exception()}", file=sys.stderr)
                return 1
            shoot(f"{spark.sparkContext.uiWebUrl}/StreamingQuery/", IMAGE)
            query.stop()
        finally:
            end.set()
            publisher.join()
            spark.stop()
    print(f"wrote {IMAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
