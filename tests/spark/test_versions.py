"""Which PySpark can do what, by value."""

from __future__ import annotations

import pytest

from nsqclient.errors import ConfigError
from nsqclient.spark.versions import check_streaming, check_version


@pytest.mark.parametrize("version", ["4.1.0", "4.1.2.dev0", "4.2.0", "4.10.0", "5.0.0"])
def test_the_sink_peeks_and_drains_need_4_1(version):
    """Also a development version of it."""
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1"])
def test_an_older_one_is_refused(version):
    """The error names what it is, and what to install."""
    with pytest.raises(ConfigError, match=f"needs PySpark 4.1.* this is {version}: pip install"):
        check_version(version)


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "5.0.0"])
def test_streaming_reads_need_4_2(version):
    """From then on a source limits its batches."""
    check_streaming(version)


def test_a_streaming_read_on_4_1_is_refused():
    """In one line, which says what can be done there."""
    with pytest.raises(ConfigError) as caught:
        check_streaming("4.1.1")
    assert str(caught.value).startswith("streaming reads need PySpark 4.2; this is 4.1.1, which")
