"""The pipelines as spark-submit runs them, with the file that ``nsqclient spark script`` names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nsqclient.devserver import Nsqd
from tests.support.processes import CHECKOUT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.usefixtures("java")]

#: Seconds for a JVM to start and a small job, on a busy machine.
LIMIT = 280


def submit(*words):
    """Run a command of ``nsqclient spark`` by spark-submit; return what became of it.

    Its output is all in ``stdout``: spark-submit itself puts a program's stderr there.
    """
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false", "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "2"}
    conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    script = subprocess.run(
        [sys.executable, "-m", "nsqclient", "spark", "script"], cwd=CHECKOUT,
        capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(CHECKOUT),
                   "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [str(program), "--master", "local[2]", *conf, script, *words], env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)


@pytest.mark.long
def test_spark_submit_archives(tmp_path):
    with Nsqd() as nsqd:
        nsqd.publish_many("t", [b"%d" % number for number in range(50)])
        archived = submit(
            "archive", f"--nsqd-tcp-address={nsqd.tcp_address}", "--available-now", "--topic=t",
            f"--consumer-opt=nsqdHttp,{nsqd.http_address}", f"--path={tmp_path / 'out'}",
            f"--checkpoint={tmp_path / 'one'}")
    assert archived.returncode == 0, archived.stdout[-3000:]
    assert "archive-t batch 0: 50 rows" in archived.stdout
    assert list((tmp_path / "out").glob("date=*/hour=*/*.parquet"))


def test_spark_submit_reports_errors_in_one_line(tmp_path):
    refused = submit("archive", "--topic=t", "--nsqd-tcp-address=127.0.0.1:1",
                     f"--checkpoint={tmp_path}", "--path=")
    assert refused.returncode == 2 and "spark archive: --path required" in refused.stdout
