"""Secrets of the commands: from files and environment variables, not only from the command line."""

import subprocess

import pytest

from nsqclient.cli import main, nsqadmin
from nsqclient.cli import tool_flags
from nsqclient.cli.flags import FlagError
from nsqclient.cli.spark_run import read_source
from nsqclient.devserver import Nsqd
from nsqclient.spark.pipelines.streaming import Sink
from tests.cli.test_daemons import ANY, running
from tests.support.certificates import Certificates
from tests.support.docs.tool_runs import run_tool
from tests.support.servers.auth_server import AuthServer, granted

CLIENTS = [
    ["nsq_tail"], ["nsq_to_file"], ["nsq_to_http"], ["nsq_to_nsq"], ["to_nsq"], ["doctor"],
    ["nsqadmin"], ["spark", "archive"], ["spark", "stream"],
]


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("from file\n")
    return str(path)


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch):
    for name in ("AUTH_SECRET", "TLS_KEY_PASSWORD"):
        monkeypatch.delenv(f"NSQCLIENT_{name}", raising=False)
        monkeypatch.delenv(f"NSQCLIENT_{name}_FILE", raising=False)


def read(*words, flag="consumer-opt", **arguments):
    flags = tool_flags.ToolFlags("demo", lambda parsed: 0, "Does nothing.")
    flags.add_sources()
    flags.add("producer-opt", tool_flags.OPTIONS, (), "")
    return tool_flags.read_config(flags.parse(words).values, "demo", flag, **arguments)


@pytest.mark.parametrize("command, flag", [
    *[(command, flag) for command in CLIENTS
      for flag in ("auth-secret-file", "tls-key-password-file")],
    (["nsqd"], "tls-key-password-file"),
    (["nsqadmin"], "http-client-tls-key-password-file"),
    (["nsq_to_http"], "http-client-tls-key-password-file"),
])
@pytest.mark.parametrize("content, reason", [(None, "cannot read"), ("\n", "is empty")])
def test_a_file_without_a_secret_is_a_bad_flag(tmp_path, capsys, command, flag, content, reason):
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    assert main([*command, f"--{flag}={path}"]) == 2
    line = capsys.readouterr().err.splitlines()[0]
    assert f"-{flag}" in line and str(path) in line and reason in line


def test_options_come_before_flags_and_flags_before_the_environment(monkeypatch, secret):
    assert read().auth_secret == ""
    monkeypatch.setenv("NSQCLIENT_AUTH_SECRET", "from environment")
    assert read().auth_secret == "from environment"
    assert read(f"--auth-secret-file={secret}").auth_secret == "from file"
    words = [f"--auth-secret-file={secret}", "--consumer-opt=auth_secret,own"]
    assert read(*words).auth_secret == "own"
    assert read(f"--consumer-opt=auth_secret_file,{secret}").auth_secret == "from file"


def test_a_file_that_an_option_or_the_environment_names_is_an_error_of_the_same_kind(monkeypatch):
    with pytest.raises(FlagError, match="auth_secret_file.*/no/such"):
        read("--consumer-opt=auth_secret_file,/no/such/file")
    monkeypatch.setenv("NSQCLIENT_AUTH_SECRET_FILE", "/no/such/file")
    with pytest.raises(FlagError, match="auth_secret_file.*/no/such"):
        read()


def test_the_secret_of_the_source_is_not_sent_to_another_destination(monkeypatch, secret):
    """nsq_to_nsq's destination has what --producer-opt says."""
    monkeypatch.setenv("NSQCLIENT_AUTH_SECRET", "of the source")
    words = [f"--auth-secret-file={secret}"]
    assert read(*words, flag="producer-opt", has_secrets=False).auth_secret == ""
    words.append(f"--producer-opt=auth_secret_file,{secret}")
    assert read(*words, flag="producer-opt", has_secrets=False).auth_secret == "from file"


def test_tools_authenticate_with_a_file_and_with_the_environment(monkeypatch, secret):
    def rule(query):
        return granted(topic="^t$") if query["secret"] in ("from file", "in environment") else 403

    with AuthServer(rule) as auth, Nsqd(auth_http_addresses=[auth.address]) as nsqd:
        words = ["--topic=t", f"--nsqd-tcp-address={nsqd.tcp_address}"]
        found = run_tool("ours", "to_nsq", *words, f"--auth-secret-file={secret}", stdin=b"one\n")
        assert found.returncode == 0, found.stderr
        monkeypatch.setenv("NSQCLIENT_AUTH_SECRET", "in environment")
        found = run_tool("ours", "nsq_tail", *words, "-n=1", "--channel=c")
        assert (found.returncode, found.stdout) == (0, b"one\n")
        secrets = {question["secret"] for question in auth.questions}
    assert secrets == {"from file", "in environment"}


def test_the_admin_page_reads_secrets_from_files(monkeypatch, secret):
    words = ["--lookupd-http-address=127.0.0.1:4161", f"--auth-secret-file={secret}",
             "--http-client-tls-cert=c", "--http-client-tls-key=k"]
    monkeypatch.setenv("NSQCLIENT_TLS_KEY_PASSWORD", "in environment")
    settings = nsqadmin.build_settings(nsqadmin.build_command().parse(words))
    assert settings.consumer_config.auth_secret == "from file"
    assert settings.http_config.tls_key_password == "in environment"
    words.append(f"--http-client-tls-key-password-file={secret}")
    settings = nsqadmin.build_settings(nsqadmin.build_command().parse(words))
    assert settings.http_config.tls_key_password == "from file"


def test_spark_pipelines_read_secrets_from_files(monkeypatch, secret):
    values = {"topic": "t", "channel": "c", "checkpoint": "/c", "available-now": True, "name": "",
              "storage": "", "nsqd-tcp-address": ["n:1"],
              "lookupd-http-address": [], "consumer-opt": [], "auth-secret-file": "from file"}
    source = read_source(values)
    assert source["auth_secret"] == "from file"
    options = {"nsqd": "n:1", "auth_secret": "a"}
    assert Sink(options, {}, "t2", "").checked.config.auth_secret == "a"
    own = {"auth_secret_file": secret}
    assert Sink(options, own, "t2", "").checked.config.auth_secret == "from file"
    assert Sink(options, {"nsqd": "o:1"}, "t2", "").checked.config.auth_secret == ""


@pytest.mark.parametrize("by_flag", [True, False])
def test_nsqd_opens_an_encrypted_key(tmp_path, monkeypatch, by_flag):
    certificates = Certificates(tmp_path)
    locked = tmp_path / "locked.pem"
    try:
        subprocess.run(
            ["openssl", "pkey", "-in", certificates.server_key, "-aes256", "-passout", "pass:pw",
             "-out", str(locked)],
            check=True, capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("no openssl program")
    words = [*ANY, "--https-address=127.0.0.1:0", f"--tls-cert={certificates.server}",
             f"--tls-key={locked}"]
    if by_flag:
        (tmp_path / "password").write_text("pw\n")
        words.append(f"--tls-key-password-file={tmp_path / 'password'}")
    else:
        monkeypatch.setenv("NSQCLIENT_TLS_KEY_PASSWORD", "pw")
    with running(tmp_path, "nsqd", *words) as daemon:
        assert daemon.end() == 0
