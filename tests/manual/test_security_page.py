"""The page on security names a test for each asset, and each of them exists."""

import ast
import re

from tests.support.docs.pages import ROOT, list_tables

[TABLE] = [table for table in list_tables("docs/topics/security.rst") if table[0][0] == "asset"]


def test_each_asset_has_a_test_that_exists():
    assert TABLE[0] == ["asset", "access", "protection", "test"]
    assert len(TABLE) > 10
    for asset, access, how, tests in TABLE[1:]:
        assert asset and access and how
        names = re.findall(r"``(tests/[\w/]+\.py)::(\w+)``", tests)
        assert names and len(names) == tests.count("::"), asset
        for path, name in names:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert name in found, f"{path} has no {name}"
