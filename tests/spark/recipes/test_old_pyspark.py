"""PySpark 3.5 without data sources: its tasks publish with a Producer."""

from tests.spark.pages import COUNT, run
from tests.support.docs.pages import named, text_of


def test_each_row_is_published(spark, cluster):
    nsqd = cluster[0]
    nsqd.empty_topic("orders")
    run(spark, cluster, text_of(named("Spark recipe: PySpark 3.5")),
        df=spark.range(0, COUNT * 50, 1, 3))
    bodies = sorted(message.body for message in nsqd.messages("orders"))
    assert bodies == sorted(b'{"id":%d}' % number for number in range(COUNT * 50))
