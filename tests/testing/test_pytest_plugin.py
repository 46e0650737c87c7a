"""The fixtures that users get."""

import subprocess
import sys
import textwrap

import pytest

from nsqclient.testing import pytest_plugin


@pytest.fixture
def run_tests(tmp_path):
    """Run a test file of a user in a pytest of its own; return its output."""

    def run(source):
        file = tmp_path / "test_user.py"
        file.write_text(textwrap.dedent(source))
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
        command += ["-p", pytest_plugin.__name__, "--rootdir", str(tmp_path), str(file)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False,
            env={"PYTHONPATH": ":".join(sys.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )
        return done.stdout + done.stderr

    return run


def test_fixtures_give_servers_that_stop_with_the_test(run_tests):
    output = run_tests(
        """
        import sys
        import threading

        def test_lazy():
            assert "nsqclient.devserver" not in sys.modules
            assert "nsqclient.message" not in sys.modules

        def test_one(nsqd):
            nsqd.publish("t", b"x")
            assert len(nsqd.messages("t")) == 1

        def test_more(nsqd_factory, nsqlookupd):
            addresses = [nsqlookupd.tcp_address]
            first = nsqd_factory(lookupd_tcp_addresses=addresses, msg_timeout=2.0)
            second = nsqd_factory(lookupd_tcp_addresses=addresses)
            assert first.tcp_address != second.tcp_address
            assert first.options.msg_timeout == 2.0
            assert any(t.name.startswith("nsq-") for t in threading.enumerate())

        def test_nothing_is_left():
            assert not [t.name for t in threading.enumerate() if t.name.startswith("nsq-")]
        """
    )
    assert "4 passed" in output, output


def test_what_was_published_is_there_whoever_published_it(run_tests):
    output = run_tests(
        """
        import pytest
        from nsqclient import ConfigError, Producer, PublishRejectedError
        from nsqclient.http import NsqdHTTP

        def test_all_ways(nsqd, published):
            nsqd.faults.fail_next("PUB", "E_BAD_MESSAGE")
            with Producer([nsqd.tcp_address]) as producer:
                with pytest.raises(PublishRejectedError):
                    producer.publish("t", b"refused")
                producer.publish("t", b"one")
                producer.publish_many("t", [b"two", b"three"])
                producer.publish("t", b"late", defer=60)
                producer.publish_json("other", {"a": 1})
                future = producer.publish_async("async", b"x")
                assert published.wait_for("async") == [b"x"]
            with NsqdHTTP(nsqd.http_address) as http:
                http.pub("t", b"http")
            nsqd.empty_topic("t")
            assert published("t") == [b"one", b"two", b"three", b"late", b"http"]
            assert published.json("other") == [{"a": 1}] and published("none") == []
            with pytest.raises(TimeoutError, match="1 of 2 messages were published to other"):
                published.wait_for("other", 2, timeout=0.01)
            for wrong in ({"count": -1}, {"count": "1"}, {"timeout": -1}, {"timeout": "1"}):
                with pytest.raises(ConfigError):
                    published.wait_for("other", **wrong)
        """
    )
    assert "1 passed" in output, output
