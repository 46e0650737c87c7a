"""Command lines that a tool rejects: the exit status and the error."""

import pytest

from nsqclient.cli import main

NSQD = ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1"]
POST = [*NSQD, "--post=http://h/"]
TLS = "--http-client-tls-"
COPY = [*NSQD, "--destination-nsqd-tcp-address=b:1"]
CHANNEL = ["--topic=t", "--channel=c"]
ADMIN = ["--nsqd-http-address=a:1"]
REFUSED = {
    "nsqadmin": [
        (["--nsqd-http-address=nonsense"], 2, "nsqd_http_address"),
        ([*ADMIN, "--http-address=8080"], 2, "--http-address"),
        ([*ADMIN, "--rewrite-address=x"], 2, "FROM=TO"),
        ([*ADMIN, "--allow-actions", "--admin-user=ada"], 2, "not both"),
        ([*ADMIN, "--allow-actions", "--http-address=:0"], 2, "--allowed-host"),
        ([*ADMIN, "extra"], 2, "unexpected argument 'extra'"),
        (["--graphite-urls=http://x"], 2, "unknown flag --graphite-urls"),
    ],
    "nsq_tail": [
        ([*NSQD, "--json", "--format={id}"], 2, "not both"),
        (["--topic=t", "--nsqd-tcp-address=a"], 2, "a"),
        (["--format={nope}"], 2, "unknown field {nope}"),
        (["--format={id"], 2, "-format"),
    ],
    "nsq_stat": [
        ([*CHANNEL, "--count=x"], 2, "--count: 'x'"),
        ([*CHANNEL, "--count=0"], 2, "--count should be positive"),
        ([*CHANNEL, "--interval=0s"], 2, "--interval should be positive"),
        ([*CHANNEL, "--nsqd-http-address=a"], 2, "nsqd_http_address 'a' has no port"),
    ],
    "nsq_to_nsq": [
        ([*COPY, "--destination-nsqd-tcp-address=b"], 2, "b"),
        ([*COPY, "--mode=nope"], 2, "--mode: invalid choice"),
        ([*COPY, "--producer-opt=nope"], 2, "-producer-opt"),
    ],
    "to_nsq": [
        ([*NSQD, "--delimiter="], 2, "at least one byte"),
        ([*NSQD, "--defer=2h"], 2, "nsqd_max_req_timeout"),
        (["--topic=t", "--nsqd-tcp-address=a"], 2, "a"),
        (["--delimiter=\\q"], 2, "unknown escape"),
    ],
    "nsq_to_http": [
        ([*NSQD, "--get=http://h/"], 2, "it needs one %s"),
        ([*NSQD, "--get=http://h/%s%s"], 2, "it needs one %s"),
        ([*NSQD, "--get=http://h/%s", "--content-type=a/b"], 2, "only used with --post"),
        ([*NSQD, "--post=h:1"], 2, "is not an http:// or https:// URL"),
        ([*POST, "--mode=roundrobin"], 2, "--mode: invalid choice: 'roundrobin'"),
        ([*POST, "--sample=nan"], 2, "--sample must be between 0.0 and 1.0"),
        ([*POST, "--sample=x"], 2, "--sample: could"),
        ([*POST, "--header=key=value"], 2, "write it as 'Key: Value'"),
        ([*POST, "--n=0"], 2, "--n must be at least 1"),
        ([*POST, "--on-status=4xx"], 2, "write STATUS=ACTION"),
        ([*POST, "--on-status=4xx=dead-letter"], 2, "needs --dead-letter-topic"),
        ([*POST, "--dead-letter-topic=d"], 2, "needs --on-status=STATUS=dead-letter or"),
        ([*POST, f"{TLS}root-ca-file=/no/such.pem"], 1, "/no/such.pem"),
        ([*POST, f"{TLS}cert=/no/c.pem", f"{TLS}key=/no/k.pem"], 1, "/no/c.pem"),
        ([*NSQD, "--post=ftp://u:s3cret@h/"], 2, "'ftp://u:***@h/' is not an http:// or"),
    ],
    "nsq_to_file": [
        (NSQD[1:], 2, "--topic or --topic-pattern required"),
        ([NSQD[1], "--topic-pattern=x"], 2, "--lookupd-http-address must be specified"),
        ([*NSQD, "--gzip-level=10"], 2, "--gzip-level should be 1-9"),
        ([*NSQD, "--gzip", "--zstd"], 2, "not both"),
        ([*NSQD, "--gzip", "--filename-format=x"], 2, "missing <REV>"),
        ([*NSQD, "--topic-pattern=("], 2, "--topic-pattern"),
        ([*NSQD, "--topic-pattern=x"], 2, "allows none"),
        ([*NSQD, "--sync-interval=0s"], 2, "should be positive"),
        ([*NSQD, "--max-in-flight=0", "--topic-pattern=x"], 2, "no message will arrive"),
        ([*NSQD, "--topic-refresh=0", "--gzip-level=0"], 2, "--gzip-level"),
        ([*NSQD, "--exec-on-close=/no/such/program"], 2, "no such program"),
        ([*NSQD, "--dead-letter-topic=d"], 2, "max_attempts"),
        ([*NSQD, "--log-level=bad"], 2, "--log-level: invalid choice: "),
        ([*NSQD, "--log-level="], 2, "--log-level: invalid choice: "),
        (["--topic=..", NSQD[1], "--filename-format=<TOPIC>/x"], 1, "outside"),
        ([*NSQD, "--file-mode=0888"], 2, "-file-mode"),
        ([*NSQD, "--file-mode=0"], 2, "-file-mode"),
    ],
    "doctor": [
        (["--channel=x"], 2, "--channel needs --topic"),
        (["--topic=x", "--nsqd-tcp-address=x"], 2, "has no port"),
        (["--topic=x", "--nsqd-http-address=x"], 2, "nsqd_http_address"),
        (["--topic=x", "--lookupd-http-address=:"], 2, "has no"),
        (["--topic=x", "--nsqd-tcp-address=x:1", "--consumer-opt=nope,1"], 2, "nope"),
        (["--what"], 2, "unknown flag --"),
    ],
    "dead_letters": [
        ([], 2, "Commands:"),
        (["lst"], 2, "did you mean list?"),
        (["list", "--topic=t"], 2, "--topic needs --nsqd-tcp-address or --lookupd-http-address"),
        (["list", "--topic=t", "--id=x"], 2, "--id needs --path"),
        (["list", "--path=/no/such"], 2, "is not a directory"),
        (["show", "--path=."], 2, "--path needs --id"),
        (["replay", "--topic=t"], 2, "--topic needs --count"),
        (["replay", "--topic=t", "--count=0"], 2, "--count should be positive"),
        (["replay", "--topic=t", "--count=1", "--nsqd-tcp-address=a:1"], 2,
         "--destination-topic or --to-origin required"),
        (["replay", "--topic=t", "--count=1", "--all"], 2, "--all needs --path"),
        (["replay", "--path=.", "--all", "--to-origin"], 2, "--path needs --nsqd-tcp-address or"),
        (["replay", "--path=.", "--all", "--id=x", "--to-origin"], 2, "--id or --all not both"),
        (["delete", "--path=."], 2, "--path needs --id or --all"),
    ],
    "nsqd": [
        (["--tcp-address=4150"], 2, "--tcp-address"),
    ],
}


@pytest.mark.parametrize("words, status, text", [
    ([tool, *words], status, text)
    for tool, rows in REFUSED.items() for words, status, text in rows
])
def test_a_command_line_is_refused(words, status, text, capsys):
    assert main(words) == status
    printed = capsys.readouterr()
    assert text in printed.err and printed.out == ""
