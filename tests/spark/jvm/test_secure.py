"""TLS, AUTH and compression from Spark: both sides, on a real nsqd that insists on all of it."""

import pytest

import nsqclient.spark
from tests.support.certificates import Certificates
from tests.support.servers.auth_server import NOTHING, AuthServer, granted

pytestmark = pytest.mark.real

SECRET = "s3cret of+the&test"


@pytest.fixture
def where(real_nsqd, tmp_path_factory):
    """The options of both sides for an nsqd that requires TLS, a certificate and a secret."""
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    with AuthServer(
        lambda query: granted(topic=".*") if query["secret"] == SECRET else NOTHING
    ) as auth:
        guarded = real_nsqd(
            tls_required="tcp-https", tls_cert=certificates.server,
            tls_key=certificates.server_key, tls_root_ca_file=certificates.ca,
            tls_client_auth_policy="require-verify", auth_http_addresses=[auth.address])
        yield {
            "nsqd": guarded.tcp_address, "tls_v1": "true", "tls_root_ca_file": certificates.ca,
            "tls_cert": certificates.client, "tls_key": certificates.client_key,
            "auth_secret": SECRET,
        }


def rows(spark, count):
    return spark.range(count).selectExpr("cast(id AS string) AS body")


def start(spark, where, tmp_path, **more):
    options = {**where, "topic": "t", "channel": "c", "storage": str(tmp_path / "log"), **more}
    frame = spark.readStream.format("nsq").options(**options).load()
    return frame, frame.writeStream.format("parquet").option(
        "checkpointLocation", str(tmp_path / "checkpoint")).option(
        "path", str(tmp_path / "out")).trigger(availableNow=True).start()


@pytest.mark.parametrize("layer", ["snappy", pytest.param("deflate", marks=pytest.mark.long)])
def test_both_sides_work_with_tls_and_authentication(spark, where, tmp_path, layer, capfd):
    """Neither the plan nor the progress shows the secret."""
    nsqclient.spark.register(spark)
    options = {**where, layer: "true"}
    written = rows(spark, 300)
    written.write.format("nsq").mode("append").options(**options, topic="t").save()
    frame, query = start(spark, options, tmp_path, idleMs="1000")
    assert query.awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "out")).select("body").distinct().count() == 300
    frame.explain(True)
    query.explain(True)
    shown = "".join(map(str, query.recentProgress)) + str(query.lastProgress)
    printed = capfd.readouterr()
    assert "s3cret" not in shown + printed.out + printed.err
