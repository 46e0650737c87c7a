"""The reference has every public name, according to its directives."""

import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Iterator

import pytest

import nsqclient
from tests.support.docs.pages import PAGES, read

DIRECTIVE = re.compile(r"^\.\. (?:auto)?(class|function|exception|module):: ([\w.]+)", re.MULTILINE)
#: Modules that users import from; of one with __all__, what stands there.
PACKAGES = [
    "nsqclient", "nsqclient.errors", "nsqclient.consumer.batch",
    "nsqclient.dead_letters", "nsqclient.http", "nsqclient.devserver", "nsqclient.testing",
    "nsqclient.contrib.django", "nsqclient.contrib.flask",
    "nsqclient.metrics.prometheus", "nsqclient.metrics.opentelemetry",
    "nsqclient.worker.middleware", "nsqclient.spark",
    "nsqclient.spark.errors", "nsqclient.spark.pipelines",
]
#: Public to other packages of nsqclient only.
INTERNAL = {"server_error", "BatchDelegate", "counter", "gauge", "render", "WorkerMetrics",
            "check_key"}


def own(module: types.ModuleType) -> Iterator[object]:
    listed = getattr(module, "__all__", None)
    for name in listed or [name for name in vars(module) if not name.startswith("_")]:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            if listed or value.__module__ == module.__name__:
                yield value


def shown() -> list[object]:
    found: list[object] = []
    for page in PAGES:
        if page.startswith("docs/reference/"):
            for kind, path in DIRECTIVE.findall(read(page)):
                value = pkgutil.resolve_name(path)
                found += own(value) if isinstance(value, types.ModuleType) else [value]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_stands_in_the_reference(package: str) -> None:
    everything = {id(value) for value in shown()}
    values = [value for value in own(importlib.import_module(package))
              if getattr(value, "__name__", "") not in INTERNAL]
    assert values
    assert [value for value in values if id(value) not in everything] == []
    assert [value for value in values if not value.__doc__] == []


def test_a_consumer_shows_its_documented_interface_and_nothing_else() -> None:
    """Internal parts report to a private object, so an editor completes only public names."""
    listed = re.search(r"autoclass:: nsqclient.Consumer\n   :members:((?:[^:]|\n      )*?)\n\n",
                       read("docs/reference/consumer.rst"))
    assert listed is not None
    with_docs = [name.strip() for name in listed[1].split(",")]
    consumer = nsqclient.Consumer("t", "c", print, nsqd_tcp_addresses=["127.0.0.1:1"])
    assert sorted(with_docs) == [name for name in dir(consumer) if not name.startswith("_")]
