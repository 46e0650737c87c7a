"""The session of these tests knows ``nsq`` as a user program would."""

from typing import Any

import pytest

import nsqclient.spark


@pytest.fixture(scope="session")
def spark(spark: Any) -> Any:
    nsqclient.spark.register(spark)
    return spark
