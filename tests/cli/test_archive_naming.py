"""Names, rotation and records of nsq_to_file, by value."""

import time

import pytest

from nsqclient.cli.archive_files import RotationRules
from nsqclient.cli.archiver import (
    FileNames, count_that_fit, format_datetime, rotation_reason,
)
from nsqclient.cli.flags import CommandLineError

#: 2026-01-04 was a Sunday.
MOMENT = time.struct_time((2026, 1, 4, 15, 7, 9, 6, 4, 0), {"tm_zone": "CET", "tm_gmtoff": 3600})


@pytest.mark.parametrize(("text", "expected"), [
    ("%Y-%m-%d_%H", "2026-01-04_15"),
    ("%B %b %A %a %I:%M:%S %p %y", "January Jan Sunday Sun 03:07:09 PM 26"),
    ("%Z %z", "CET +0100"),
    ("%j %% 100%", "%j % 100%"),
    ("Jan 2006 15", "Jan 2006 15"),
])
def test_datetime_format_fills_its_codes_in_english(text, expected):
    assert format_datetime(text, MOMENT) == expected


def names(text, datetime_format="%S", **changes):
    arguments = {"topic": "t", "hostname": "a.example.org", "host_identifier": "", "pid": 7,
                 "needs_rev": False, "suffix": ""}
    return FileNames(text, datetime_format, **(arguments | changes))


def test_a_missing_rev_is_rejected():
    with pytest.raises(CommandLineError, match="missing <REV>"):
        names("<TOPIC>", needs_rev=True)


def test_names_follow_the_time():
    found = names("a<REV>.<DATETIME>", needs_rev=True)
    assert [found.at(moment) for moment in (5.0, 5.9, 6.0)] == ["a<REV>.05"] * 2 + ["a<REV>.06"]


@pytest.mark.parametrize(("name", "now", "rules", "expected"), [
    ("name", 1e9, RotationRules(), None),
    ("other", 101.0, RotationRules(), "new filename other"),
    ("name", 110.0, RotationRules(interval=10.0), None),
    ("name", 111.0, RotationRules(interval=10.0), "11.000s since last open"),
    ("name", 101.0, RotationRules(size=10), None),
    ("name", 101.0, RotationRules(size=9), "currently 10 bytes (> 9)"),
])
def test_a_file_is_rotated_by_name_age_or_size(name, now, rules, expected):
    assert rotation_reason("name", 100.0, 10, name, now, rules) == expected


@pytest.mark.parametrize(("sizes", "size", "limit", "expected"), [
    ([6, 6, 6], 0, 10, 2),  # 12 bytes: more than 10, so the third has to wait
    ([5, 5, 5], 0, 10, 3),  # exactly 10 is not more than 10
    ([6], 11, 10, 0),
    ([6, 6], 99, 0, 2),
])
def test_a_file_takes_records_until_it_is_over_its_limit(sizes, size, limit, expected):
    assert count_that_fit(sizes, size, RotationRules(size=limit)) == expected
