"""These tests take minutes each: only ``make hard NAME=spark-chaos`` collects them."""

import os

collect_ignore_glob = [] if os.environ.get("SPARK_CHAOS") else ["test_*.py"]
