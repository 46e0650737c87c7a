"""Loading of modules and handlers, and errors that say why not."""

import sys

import pytest

from nsqclient import ConfigError
from nsqclient.worker.loading import (
    ImportFailedError, UnknownTargetError, load_handler, load_module, submodules_of,
)


def handle(message):
    """A handler that has a path."""


@pytest.mark.parametrize("path", [f"{__name__}.handle", f"{__name__}:handle"])
def test_a_handler_is_loaded_by_its_path(path):
    assert load_handler(path).__name__ == "handle"


def test_what_is_no_handler_is_rejected():
    with pytest.raises(ConfigError, match=f"handler '{__name__}.__name__'.*not callable"):
        load_handler(f"{__name__}.__name__")


@pytest.mark.parametrize(("path", "words"), [
    ("handle", "give a dotted path"),
    ("no_such_package.tasks.handle", "there is no module 'no_such_package'"),
    ("tests.worker.no_such_module.handle", "there is no module"),
    (f"{__name__}.handel", "has no 'handel'"),
])
def test_a_path_to_nothing_is_an_error_of_the_command_line(path, words):
    with pytest.raises(UnknownTargetError, match=words):
        load_handler(path)


@pytest.mark.parametrize(("name", "words"), [
    ("shop/handlers.py", "give the module, shop.handlers, not the file"), ("", "not a module name"),
    (".handlers", "not a module name"), ("no_such_module_at_all", "looked for from"),
])
def test_the_name_of_a_file_is_no_module(name, words):
    with pytest.raises(UnknownTargetError, match=words):
        load_module(name)


@pytest.mark.parametrize(("code", "words"), [
    ("import surely_not_there\n", "ModuleNotFoundError: No module named 'surely_not_there'"),
    ("x = 1\ndef handle(message:\n", "SyntaxError: .*broken.py, line 2"),
    ("\n\n1 / 0\n", "ZeroDivisionError: division by zero .*broken.py, line 3"),
    ("raise SystemExit(3)\n", "SystemExit: 3"),
    # Python 3.10 names the line of the function.
    ("import nsqclient\n@nsqclient.handler('a b', 'c')\ndef handle(m): ...\n",
     f"InvalidTopicError: .*broken.py, line {3 if sys.version_info < (3, 11) else 2}"),
    ("import nsqclient\nnsqclient.handler('a', 'c', workers=0)(print)\n",
     "cannot be imported: handler builtins.print: workers must be .*broken.py, line 2"),
])
def test_a_module_that_does_not_import_is_one_line(tmp_path, monkeypatch, code, words):
    (tmp_path / "broken.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportFailedError, match=words) as caught:
        load_module("broken")
    assert "\n" not in str(caught.value) and caught.value.__cause__ is not None


def test_a_function_in_the_place_of_a_module_says_how_to_name_it():
    with pytest.raises(UnknownTargetError, match="with json:loads"):
        load_module("json.loads")


def test_the_modules_of_a_package_are_named():
    load_module("json")
    assert {"json.decoder", "json.encoder"} <= set(submodules_of(["json"]))
    assert submodules_of(["json.decoder"]) == []
