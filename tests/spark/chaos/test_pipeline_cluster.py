"""``make pipeline-cluster`` with a small file: every line is in the archive once."""

import os
import subprocess
import sys

import pytest

from tests.support.processes import CHECKOUT

pytestmark = [pytest.mark.spark_chaos, pytest.mark.timeout(1800)]


def test_the_pipeline_on_a_cluster_archives_a_file(tmp_path):
    (tmp_path / "own.txt").write_text("three words here\n" * 500)
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "examples" / "spark" / "pipeline_cluster.py")],
        cwd=tmp_path, env={**os.environ, "INPUT": "own.txt"}, timeout=1500,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0
    assert "| archived   |      500 |" in done.stdout
    assert "three" in next(tmp_path.glob("pipeline-output/*/words.svg")).read_text()
