"""The pages about retries and dead letters: the example, the envelope, and the commands."""

import json
import re
import shlex
from pathlib import Path

import pytest

from nsqclient import DeadLetter, DeadLetterDirectory
from nsqclient.message import Message
from tests.manual.conftest import Cluster
from tests.support.docs.pages import ROOT, blocks, commands_of, named, text_of
from tests.support.docs.terminal import Terminal

EXAMPLE = ROOT / "examples/retries.py"
LETTER = DeadLetter(b"seven", "orders", "billing", id="18a513889a269001", attempts=1,
                    timestamp=1_795_402_797_966_185_373, reason="this is no order")


class Origin:
    """The responder of a message of ``orders``."""

    address, topic, channel = "127.0.0.1:4150", "orders", "billing"


def keep(folder: Path, *ids: str) -> None:
    for each in ids:
        DeadLetterDirectory(folder)(
            Message(b"seven", each.encode(), 5, 1, 0.0, 0.0, Origin()))  # type: ignore[arg-type]


def test_the_example_prints_what_the_page_shows(empty_terminal: Terminal) -> None:
    shown = text_of(named("examples/retries.py")).splitlines()
    output = empty_terminal.run(f"python {shlex.quote(str(EXAMPLE))}").splitlines()
    expected = [line for line in shown if line != "..." and not line.startswith("$")]
    assert sorted(expected) == sorted(
        line for line in output if not re.match(r"replayed \w{16} to orders$", line))
    assert len(output) == len(expected) + 3


def test_the_envelope_of_the_page_is_one() -> None:
    [block] = blocks("docs/topics/retries.rst", "json")
    values = json.loads(block.text)
    assert list(values) == list(json.loads(LETTER.to_envelope()))
    letter = DeadLetter.parse(block.text.encode())
    assert (letter.body, letter.topic, letter.id) == (b"seven", LETTER.topic, LETTER.id)


def test_the_commands_for_a_directory_work(terminal: Terminal, cluster: Cluster) -> None:
    folder = terminal.folder / "dead-letters"
    listing, show, one, rest, delete = commands_of(named("dead_letters directory"))
    keep(folder, LETTER.id, "18a513889a269002", "18a513889a269003")
    assert len(terminal.run(listing).splitlines()) == 3
    assert "body (utf-8):\n    seven" in terminal.run(show)
    assert "replayed 1 of 1 dead letter" in terminal.run(one)
    assert "replayed 2 of 2 dead letters" in terminal.run(rest)
    keep(folder, LETTER.id)
    assert "deleted 1 of 1 dead letter" in terminal.run(delete)
    assert list(folder.iterdir()) == []
    assert [message.body for message in cluster.nsqd.messages("orders")] == [b"seven"] * 3


@pytest.mark.long
def test_the_commands_for_a_topic_work(terminal: Terminal, cluster: Cluster) -> None:
    cluster.create_topic("orders.dead")
    cluster.create_topic("orders")
    cluster.nsqd.create_channel("orders.dead", "dead_letters")
    cluster.nsqd.publish_many("orders.dead", [LETTER.to_envelope()] * 4)
    listing, show, replay, delete = (
        f"{command} --timeout=2s" for command in commands_of(named("dead_letters topic")))
    assert terminal.run(listing).count("this is no order") == 4
    assert "reason: this is no order" in terminal.run(show)
    assert "replayed 2 of 2 dead letters" in terminal.run(replay)
    assert "deleted 1 of 1 dead letter" in terminal.run(delete)
    assert terminal.run(listing).count("this is no order") == 1
    assert [message.body for message in cluster.nsqd.messages("orders")] == [b"seven"] * 2
