"""``nsqclient nsqadmin`` as a process, and what its flags mean."""

import re
import signal
import socket

import pytest
import requests

from nsqclient.cli.nsqadmin import build_command, build_settings
from nsqclient.devserver import Nsqd
from tests.support.docs.tool_runs import tool
from tests.support.waiting import wait_until


def settings(*words: str):
    return build_settings(build_command().parse(["--lookupd-http-address=127.0.0.1:4161", *words]))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once(tmp_path, signum):
    with socket.create_server(("127.0.0.1", 0)) as silent, Nsqd() as nsqd:
        words = [f"--nsqd-http-address=127.0.0.1:{silent.getsockname()[1]}",
                 f"--nsqd-http-address={nsqd.http_address}", "--http-address=127.0.0.1:0",
                 "--http-client-request-timeout=60s"]
        log = tmp_path / "log"
        with log.open("wb") as file, tool("ours", "nsqadmin", *words, stderr=file) as process:
            found = wait_until(lambda: re.search(r"listening on (\S+)", log.read_text()), 30)
            url = found[1]
            assert requests.get(f"{url}ping", timeout=10).text == "OK"
            with pytest.raises(requests.Timeout):
                requests.get(f"{url}api/live/topics", timeout=0.5)
            process.send_signal(signum)
            assert process.wait(30) == 0  # the request that hangs takes twice as long
            assert "Traceback" not in log.read_text()


def test_flags_of_the_original_that_have_no_effect_are_taken(caplog):
    command = build_command()
    words = [f"--{name}={text}" for name, text in {
        "graphite-url": "http://x", "proxy-graphite": "true", "statsd-counter-format": "x",
        "statsd-gauge-format": "x", "statsd-interval": "-1s", "statsd-prefix": "x",
        "dev-static-dir": "/x"}.items()]
    with socket.create_server(("127.0.0.1", 0)) as other:
        words += [f"--http-address=127.0.0.1:{other.getsockname()[1]}"]
        assert command.run(["--nsqd-http-address=127.0.0.1:1", *words]) == 1
    assert "flags without effect here: --dev-static-dir, --graphite-url" in caplog.text


def test_a_timeout_that_is_off_is_the_longest():
    """The original waits for ever; here nothing does."""
    found = settings("--http-client-request-timeout=0", "--http-client-connect-timeout=-1s")
    assert (found.request_timeout, found.connect_timeout) == (600, 600)


def test_flags_become_settings():
    found = settings(
        "--base-path=/nsq/", "--admin-user=ada", "--admin-user=bob", "--acl-http-header=X-User",
        "--allow-peek", "--allowed-host=a.example", "--rewrite-address=a:1=b:2",
        "--http-client-request-timeout=7s", "--refresh-interval=500ms",
        "--consumer-opt=auth_secret,xyz", "--http-client-tls-insecure-skip-verify",
    )
    assert found.base_path == "/nsq" and found.admin_users == ("ada", "bob")
    assert found.acl_http_header == "X-User" and found.allow_peek and not found.allow_actions
    assert found.rewrite_addresses == (("a:1", "b:2"),)
    assert (found.request_timeout, found.refresh_interval) == (7.0, 0.5)
    assert found.consumer_config.auth_secret == "xyz" and not found.consumer_config.tls_v1
    assert found.http_config.tls_v1 and found.http_config.tls_insecure_skip_verify


def test_a_config_file_has_the_names_of_the_original(tmp_path):
    path = tmp_path / "nsqadmin.cfg"
    path.write_text('nsqlookupd_http_addresses = ["a:1", "b:2"]\nbase_path = "/x"\n'
                    'admin_users = ["ada"]\n')
    parsed = build_command().parse([f"--config={path}", "--base-path=/y"])
    found = build_settings(parsed)
    assert found.lookupd_http_addresses == ("a:1", "b:2")
    assert found.base_path == "/y" and found.admin_users == ("ada",)
