"""Storage that cannot be used ends each command, and a query, with its reason on one line."""

import sys

import pytest

from nsqclient.cli.spark import main
from nsqclient.errors import NSQError
from nsqclient.spark.options import read_options
from nsqclient.spark.reading.reader import NsqStreamReader
from nsqclient.spark.storage import local
from tests.support.servers.http_recorder import recording
from tests.support.servers.object_store import environment

_DENIED = b"""<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code>
<Message>The request signature does not match.</Message></Error>"""


def use(command, url, capfd, status=1):
    words = {
        "ingest": ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1"], "status": [],
        "replay": ["--topic=t", "--channel=c", "--dry-run"],
    }
    if command == "query":
        with pytest.raises(NSQError) as failed:
            NsqStreamReader(read_options({"topic": "t", "channel": "c", "storage": url}, "stream")
                            ).initialOffset()
        return str(failed.value)
    assert main([command, *words[command], f"--storage={url}", "--log-level=error"]) == status
    return capfd.readouterr().err.strip()


@pytest.mark.parametrize("command", ["ingest", "status", "replay", "query"])
@pytest.mark.parametrize("problem, words", [
    ("scheme", "scheme 'hdfs' is not supported: use a path, on a disk"),
    ("bucket", "there is no bucket no-such: create it, or correct the URL"),
    ("credentials", "there are no credentials: set AWS_ACCESS_KEY_ID"),
    ("denied", "access was denied (SignatureDoesNotMatch): check the credentials"),
    ("library", "obstore is needed: pip install 'nsqclient[spark-storage]'"),
    ("file", "/file: "),
])
def test_a_storage_that_cannot_be_used(
    s3_endpoint, leak_guard, monkeypatch, tmp_path, capfd, command, problem, words
):
    """The error says what to do, without a traceback, and no thread was started."""
    (tmp_path / "file").write_text("")
    urls = {"scheme": "hdfs://bucket/x", "file": f"file://{tmp_path}/file"}
    url = urls.get(problem, "s3://no-such/x")
    with recording() as denying, environment(
        denying.url if problem == "denied" else s3_endpoint
    ):
        denying.status, denying.body = 403, _DENIED
        denying.headers = {"Content-Type": "application/xml"}
        if problem == "credentials":
            monkeypatch.delenv("AWS_ACCESS_KEY_ID")
            monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        if problem == "library":
            monkeypatch.delitem(sys.modules, "nsqclient.spark.storage.object_store", raising=False)
            monkeypatch.setitem(sys.modules, "obstore", None)
        said = use(command, url, capfd, 2 if problem in ("scheme", "library") else 1)
    assert words in said and "\n" not in said and "Traceback" not in said


@pytest.mark.parametrize("command", ["ingest", "query"])  # the others only read
def test_a_storage_that_replaces_objects_is_refused_at_the_start(
    monkeypatch, tmp_path, capfd, command
):
    """Such a storage cannot keep two owners apart."""
    monkeypatch.setattr(local.LocalStore, "create", lambda self, key, data: True)
    said = use(command, f"file://{tmp_path}/s", capfd)
    assert "replaces an existing object, although it must only create a new one" in said
    assert "\n" not in said
