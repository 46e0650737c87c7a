"""The pages on other clients name only what exists."""

import inspect
import re

import pytest

import nsqclient
import nsqclient.http
from nsqclient.config import OPTIONS
from tests.support.docs.pages import list_tables

PAGES = [f"docs/howto/from-{name}.rst" for name in ("go-nsq", "pynsq", "gnsq")]
ARGUMENTS = {
    name
    for cls in (nsqclient.Consumer, nsqclient.Producer)
    for name in inspect.signature(cls).parameters
}
#: Attributes of a message beside its methods and properties.
FIELDS = {"attempts", "body", "id", "timestamp"}


def is_known(name: str) -> bool:
    if name in OPTIONS or name in ARGUMENTS or name in FIELDS:
        return True
    found: object = nsqclient
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", PAGES)
def test_what_stands_beside_the_other_client_exists(page: str) -> None:
    """Each row has theirs, ours, and the difference."""
    tables = list_tables(page)
    assert {len(row) for table in tables for row in table} == {3}
    names = [name for table in tables for row in table[1:]
             for name in re.findall(r"``([\w.]+)``", row[1])]
    assert len(names) > 30
    assert [name for name in names if not is_known(name)] == []


def test_every_option_of_go_nsq_is_in_the_table() -> None:
    """The options of Config that are not ours are the rows of the table, under go-nsq's name."""
    rows = {row[1].strip("`"): row[0] for row in list_tables(PAGES[0])[1][1:]}
    assert set(rows) == {
        name for name, option in OPTIONS.items() if not option.help.startswith("ours")
    }
    for name, theirs in rows.items():
        field = theirs.split("``")[1]
        assert name == re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=RDY)(?=R)", "_", field).lower()
