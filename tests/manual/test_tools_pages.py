"""The commands on the pages of the tools, typed into a terminal beside an embedded cluster."""

import json
import re
import shlex
import sys
from collections.abc import Callable

import requests

from nsqclient.devserver import Nsqd
from tests.manual.conftest import Cluster
from tests.support.docs.pages import commands_of, named, text_of
from tests.support.docs.terminal import Command, Terminal
from tests.support.packages import needs
from tests.support.servers.http_recorder import recording
from tests.support.waiting import wait_until

LIMIT = 60.0
NSQD = "--nsqd-tcp-address=127.0.0.1:4150"


def soon(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, LIMIT, what)


def channels(nsqd: Nsqd, topic: str) -> list[str]:
    return [
        channel["channel_name"] for found in nsqd.stats(topic)["topics"] or []
        for channel in found["channels"] if channel["clients"]
    ]


def bodies(nsqd: Nsqd, topic: str) -> list[bytes]:
    if not nsqd.stats(topic)["topics"]:
        return []
    return [message.body for message in nsqd.messages(topic)]


def complete(command: str, flags: str = NSQD) -> str:
    return command.replace("...", flags)


def end(*commands: Command) -> None:
    for command in commands:
        assert command.interrupt() == 0, f"{command.text}: {command.output}{command.log}"


def test_the_commands_of_the_nsq_tail_page_work(terminal: Terminal, cluster: Cluster) -> None:
    nsqd = cluster.nsqd
    for topic in ("refunds", "orders"):
        cluster.create_topic(topic)
        nsqd.create_channel(topic, "c")
    terminal.environment["NSQD_HTTP_ADDRESSES"] = nsqd.http_address
    plain, both, ten, as_json, to_file = (
        terminal.start(complete(command)) for command in commands_of(named("nsq_tail")))
    soon(lambda: len(channels(nsqd, "orders")) == 5, "five tails of orders")
    soon(lambda: len(channels(nsqd, "refunds")) == 1, "a tail of refunds")
    nsqd.publish_many("orders", [b"order"] * 10)
    nsqd.publish("refunds", b"refund")
    assert ten.end() == 0
    assert re.fullmatch(r"(\S+Z? 1 order\n){10}", ten.output), ten.output
    soon(lambda: plain.output == as_json.output == "order\n" * 10, "ten lines each")
    soon(lambda: "refunds | refund\n" in both.output, "the refund with its topic")
    assert "orders | order\n" in both.output
    file = terminal.folder / "file"
    soon(lambda: file.exists() and file.read_text() == "order\n" * 10, "ten lines in the file")
    end(plain, both, to_file)
    as_json.interrupt()  # its status is jq's


def test_the_commands_of_the_to_nsq_page_work(terminal: Terminal, cluster: Cluster) -> None:
    (terminal.folder / "orders.json").write_text("1\n2\n")
    (terminal.folder / "orders.jsonl").write_text('{"body": "order 3"}\n')
    (terminal.folder / "app.log").write_text("first\n")
    words, lines, file, tail, find, echo = (
        complete(command) for command in commands_of(named("to_nsq")))
    growing = terminal.start(tail)
    terminal.run(f"{words} && {lines} && {file} && {find} && {echo}")
    nsqd = cluster.nsqd
    assert bodies(nsqd, "orders") == [b"order 1", b"order 2", b"order 3", b"1", b"2"]
    assert b"./app.log" in bodies(nsqd, "files")
    nsqd.create_channel("alarms", "c")
    assert [m.state for m in nsqd.messages("alarms", "c")] == ["deferred"]
    soon(lambda: bodies(nsqd, "logs") == [b"first"], "the first line")
    with (terminal.folder / "app.log").open("a") as log:
        log.write("second\n")
    soon(lambda: bodies(nsqd, "logs")[1:] == [b"second"], "the second line")
    growing.interrupt()


@needs("zstandard")
def test_the_commands_of_the_nsq_to_file_page_work(terminal: Terminal, cluster: Cluster) -> None:
    nsqd, data = cluster.nsqd, terminal.folder / "data"
    data.mkdir()
    terminal.replace["/data"] = str(data).replace(" ", "\\ ")
    terminal.add_program("aws-upload", 'echo "$@" >> uploaded')
    expected = [("orders", "c3"), ("orders", "nsq_to_file"), ("refunds", "nsq_to_file"),
                ("web_hits", "c2")]
    for topic in ("orders", "refunds", "web_hits"):
        cluster.create_topic(topic)
    for topic, channel in expected:
        nsqd.create_channel(topic, channel)
    for topic in ("orders", "refunds", "web_hits"):
        nsqd.publish(topic, topic.encode())
    flags = "--output-dir=/data --lookupd-http-address=127.0.0.1:4161 --channel="
    started = [
        terminal.start(complete(command, f"{flags}c{number}") + " --sync-interval=200ms")
        for number, command in enumerate(commands_of(named("nsq_to_file")))
    ]
    for topic, channel in expected:
        nsqd.wait_until_empty(topic, channel, LIMIT)
    end(*started)
    assert (terminal.folder / "uploaded").read_text().startswith("--bucket=archive ")
    names = {path.name.split(".")[0] + path.suffix for path in data.iterdir() if path.is_file()}
    assert {"orders.log", "refunds.gz", "web_hits.zst"} <= names


def test_the_commands_of_the_nsq_to_http_page_work(terminal: Terminal, cluster: Cluster) -> None:
    nsqd = cluster.nsqd
    with recording() as a, recording() as b:
        a.decide = lambda request: 404 if request.body == b"refused" else 200
        terminal.replace.update({"http://a": a.url, "http://b": b.url})
        posts, rules = named("nsq_to_http")
        cluster.create_topic("orders")
        post, get = posts.commands
        [rule] = rules.commands
        nsqd.publish("orders", b"refused")
        refusing = terminal.start(complete(
            rule, f"{NSQD} --topic=orders --channel=rules --post=http://a/hook"))
        soon(lambda: bodies(nsqd, "orders.rejected"), "a dead letter")
        end(refusing)
        posting, getting = terminal.start(f"{post} --channel=posts"), terminal.start(
            f"{get} --channel=gets")
        soon(lambda: {"posts", "gets"} <= set(channels(nsqd, "orders")), "both are connected")
        nsqd.publish_many("orders", [b"%d" % number for number in range(200)])
        for name in ("posts", "gets"):
            nsqd.wait_until_empty("orders", name, LIMIT)
        end(posting, getting)
        came = [*a.requests, *b.requests]
    sent = [request for request in came if request.method == "POST" and request.body.isdigit()]
    assert len(sent) == 200 and {request.headers["X-Token"] for request in sent} == {"abc"}
    got = [request.path for request in came if request.method == "GET"]
    assert 0 < len(got) < 100 and all(path.startswith("/hit?m=") for path in got)


def test_the_commands_of_the_nsq_to_nsq_page_work(terminal: Terminal, cluster: Cluster) -> None:
    source = cluster.nsqd
    cluster.create_topic("refunds")
    cluster.create_topic("orders")
    order = {"id": 1, "total": 5, "state": "paid", "name": "ada"}
    with Nsqd() as there, Nsqd() as a, Nsqd() as b:
        terminal.replace.update({"there:4150": there.tcp_address, "a:4150": a.tcp_address,
                                 "b:4150": b.tcp_address})
        copy, merge, filtered = commands_of(named("nsq_to_nsq"))
        flags = f"{NSQD} --channel="
        started = [
            terminal.start(f"{copy} --channel=copy"),
            terminal.start(complete(merge, f"{flags}merge")),
            terminal.start(complete(
                filtered, f"{flags}paid --destination-nsqd-tcp-address=there:4150")),
        ]
        soon(lambda: set(channels(source, "orders")) == {"copy", "merge", "paid"}, "connected")
        source.publish("refunds", b"back")
        for value in (order, {**order, "state": "open"}):
            source.publish("orders", json.dumps(value).encode())
        soon(lambda: len(bodies(there, "orders")) == 2, "two copies")
        soon(lambda: len(bodies(a, "money") + bodies(b, "money")) == 3, "three of money")
        soon(lambda: bodies(there, "paid"), "the order that is paid")
        end(*started)
        assert [json.loads(body) for body in bodies(there, "paid")] == [{"id": 1, "total": 5}]


def test_the_commands_of_the_nsq_stat_page_work(terminal: Terminal, cluster: Cluster) -> None:
    cluster.create_topic("orders")
    cluster.nsqd.publish_many("orders", [b"x"] * 4)
    cluster.nsqd.create_channel("orders", "mail")
    watch, once = commands_of(named("nsq_stat"))
    watching = terminal.start(f"{watch} --interval=100ms")
    assert json.loads(terminal.run(f"{once} --interval=100ms"))["depth"] == 4
    soon(lambda: watching.output.count("\n") >= 3, "a row")
    end(watching)
    shown, printed = text_of(named("output of nsq_stat")), watching.output
    assert printed.splitlines()[:2] == shown.splitlines()[:2]
    assert len(printed.splitlines()[2].split()) == len(shown.splitlines()[2].split())


def test_the_commands_of_the_nsqadmin_page_work(terminal: Terminal, cluster: Cluster) -> None:
    cluster.create_topic("events")
    starts, script, rewrite = named("nsqadmin")
    terminal.replace.update({
        "127.0.0.1:5151": cluster.nsqd.http_address, "127.0.0.1:14151": cluster.nsqd.http_address})
    page = terminal.serve(f"{starts.commands[0]} --allow-actions")
    terminal.run(script.commands[0])
    assert cluster.nsqd.stats("events")["topics"][0]["paused"]
    end(page)
    for command in [starts.commands[1], *rewrite.commands]:
        page = terminal.serve(command)
        topics = requests.get(f"http://{terminal.replace['127.0.0.1:4171']}/api/topics", timeout=20)
        assert [topic.get("topic_name", topic) if isinstance(topic, dict) else topic
                for topic in topics.json()["topics"]] == ["events"]
        end(page)


def test_the_table_of_the_doctor_page_is_its_output(terminal: Terminal, cluster: Cluster) -> None:
    [block] = named("doctor")
    cluster.create_topic("orders")
    cluster.nsqd.create_channel("orders", "mail")
    cluster.nsqd.pause_channel("orders", "mail")
    terminal.replace["lookup:4161"] = cluster.lookupd.http_address
    with Nsqd(broadcast_address="5f3c9a",
              lookupd_tcp_addresses=[cluster.lookupd.tcp_address]) as hidden:
        hidden.create_topic("orders")
        lookup = f"http://{cluster.lookupd.http_address}/lookup?topic=orders"
        soon(lambda: len(requests.get(lookup, timeout=10).json()["producers"]) == 2, "registered")
        found = terminal.start(f"{block.commands[0]} --watch=0")
        assert found.end() == 1
    assert checks(found.output) == checks(block.text)


def test_the_doctor_without_arguments_prints_what_its_page_shows(
    terminal: Terminal, cluster: Cluster
) -> None:
    [block] = named("doctor here")
    cluster.create_topic("orders")
    local = (f"doctor.LOCAL_LOOKUPD = {cluster.lookupd.http_address!r};"
             f" doctor.LOCAL_NSQD = {cluster.nsqd.tcp_address!r}")
    terminal.add_program("nsqclient", (
        f"exec {shlex.quote(sys.executable)} -c \"from nsqclient.cli import doctor; {local};"
        ' import sys; sys.exit(doctor.build_command().run(sys.argv[2:]))" "$@"'))
    found = terminal.start(f"{block.commands[0]} --watch=0")
    assert found.end() == 0, found.log
    assert checks(found.output) == checks(block.text)
    [said] = [line for line in block.text.splitlines() if line.startswith("no address")]
    assert found.log == terminal.here(said) + "\n"


def test_the_commands_of_the_topics_page_work(terminal: Terminal, cluster: Cluster) -> None:
    cluster.create_topic("orders")
    cluster.nsqd.create_channel("orders", "mail")
    cluster.nsqd.publish_many("orders", [b"order"] * 3)
    [block] = named("topics")
    table, as_json = block.commands
    assert f"$ {table}\n{terminal.run(table)}$ {as_json}" == block.text.strip()
    [topic] = json.loads(terminal.run(as_json))["topics"]
    assert (topic["name"], topic["channels"][0]["depth"]) == ("orders", 3)
    for command in commands_of(named("topic actions")):
        terminal.run(command)
    assert cluster.nsqd.stats("refunds")["topics"]
    [channel] = cluster.nsqd.stats("orders")["topics"][0]["channels"]
    assert channel["paused"] and channel["depth"] == 0


def test_the_commands_of_the_configuration_page_work(terminal: Terminal, cluster: Cluster) -> None:
    (terminal.folder / "nsq.toml").write_text(terminal.here(text_of(named("configuration file"))))
    cluster.create_topic("orders")
    cluster.nsqd.create_channel("orders", "c")
    terminal.environment["NSQD_HTTP_ADDRESSES"] = cluster.nsqd.http_address
    [block] = named("configuration commands")
    first, second = (terminal.start(command) for command in block.commands)
    soon(lambda: len(channels(cluster.nsqd, "orders")) == 2, "two tails of orders")
    cluster.nsqd.publish_many("orders", [b"order 1", b"order 2", b"order 3"])
    assert (first.end(), second.end()) == (0, 0), first.log + second.log
    assert (first.output, second.output) == ("order 1\n", "order 1\norder 2\n")
    [mistake] = named("configuration mistakes")
    wrong = terminal.start(mistake.commands[0])
    assert wrong.end() == 2
    assert wrong.log == "".join(
        f"{line}\n" for line in mistake.text.splitlines() if not line.startswith("$ "))
    [completion] = named("configuration completion")
    terminal.run("; ".join(completion.commands) + "; complete -p nsqclient")


def checks(table: str) -> list[tuple[str, str]]:
    return sorted(re.findall(r"^ *(ok|ERROR|warning) +(\w+)", table, re.MULTILINE))
