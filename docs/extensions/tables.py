"""Tables of the manual that are made from the code: a copy written by hand would go stale.

``.. option-table::`` shows ``nsqclient.config.OPTIONS``, ``.. transition-table::`` the client's
``TRANSITIONS``, ``.. server-error-table::`` the codes of nsqd,
``.. spark-option-table:: read`` (or ``write``) the options of the Spark data source,
``.. module-table:: nsqclient.consumer`` the modules of a package with the first line of each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from nsqclient.config import OPTIONS, Option
from nsqclient.errors import SERVER_ERRORS, ServerError
from nsqclient.protocol.client import TRANSITIONS, Transition, State
from nsqclient.spark.options import READ_OPTIONS, WRITE_OPTIONS, SparkOption

_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))


def amount(option: Option, value: float) -> str:
    """Write a number as the reader would say it: durations with a unit, large sizes in words."""
    if option.kind == "duration" and value > 0:
        # 90 s rather than 1.5 min.
        size, unit = next((row for row in _UNITS if value % row[0] == 0), _UNITS[-1])
        return f"{value / size:g} {unit}"
    for size, unit in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if option.kind == "int" and value >= size and value % size == 0:
            return f"{value // size} {unit}"
    return f"{value:g}"


def default(option: Option) -> str:
    """Write an option's default."""
    value = option.default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"``{value!r}``"
    return amount(option, value)


def span(option: Option) -> str:
    """Write which values an option takes."""
    if option.kind not in ("duration", "int", "float"):
        return ""
    if option.low is not None and option.high is not None:
        text = f"{amount(option, option.low)} to {amount(option, option.high)}"
    elif option.low is not None:
        text = f"from {amount(option, option.low)}"
    else:
        text = "any" if option.high is None else f"up to {amount(option, option.high)}"
    return " or ".join([text, *(amount(option, value) for value in option.also)])


def option_rows() -> list[Sequence[str]]:
    """One row for each option."""
    return [
        (
            f"``{name}``",
            f"{option.help}. IDENTIFY: ``{name}``" if option.identify else option.help,
            option.kind,
            default(option),
            span(option),
        )
        for name, option in OPTIONS.items()
    ]


def transition_rows() -> list[Sequence[str]]:
    """One row for each legal move; what is legal everywhere is said once."""
    rows: list[Sequence[str]] = []
    for transition in Transition:
        moves = {old: new for (old, what), new in TRANSITIONS.items() if what is transition}
        name = transition.value
        if set(moves) == set(State) and len(set(moves.values())) == 1:
            rows.append(("any", name, f"``{next(iter(moves.values())).name}``"))
            continue
        rows += [(f"``{old.name}``", name, f"``{new.name}``") for old, new in moves.items()]
    return rows


def server_error_rows() -> list[Sequence[str]]:
    """One row for each code of nsqd."""
    return [
        (f"``{code}``", meaning, "yes" if ServerError(code).fatal else "no")
        for code, meaning in SERVER_ERRORS.items()
    ]


def spark_default(option: SparkOption) -> str:
    """Write the default of an option of the data source, as it would be given."""
    value = option.default
    if value is None or value == "" or value == ():
        return ""
    if option.kind == "ms":
        return f"``{round(value * 1000)}``"
    return f"``{str(value).lower() if option.kind == 'bool' else value}``"


def spark_option_rows(options: Iterable[SparkOption]) -> list[Sequence[str]]:
    """One row for each option; where it is for one kind of reading only, that is said."""
    rows: list[Sequence[str]] = []
    for option in options:
        only = {("stream",): "; stream only", ("batch",): "; batch only"}.get(option.sides, "")
        kind = {"ms": "ms", "text": "text", "list": "list"}.get(option.kind, option.kind)
        if option.choices:
            kind = ", ".join(option.choices)
        rows.append((f"``{option.name}``", option.help + only, kind, spark_default(option)))
    return rows


def module_rows(package: str) -> list[Sequence[str]]:
    """One row for each module of a package, with the first line of its docstring."""
    root = Path(__file__).resolve().parents[2]
    folder = root / package.replace(".", "/")
    rows: list[Sequence[str]] = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        summary = (ast.get_docstring(tree) or "").split("\n\n")
        if path.name != "__init__.py":
            name = ".".join(path.relative_to(folder).with_suffix("").parts)
            rows.append((f"``{name}``", " ".join(summary[0].split())))
    return rows


def list_table(widths: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """Build the source of a table whose first row is its head."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in rows:
        lines += [f"   {'*' if n == 0 else ' '} - {cell}" for n, cell in enumerate(row)]
    return lines


class _Table(SphinxDirective):
    """A directive without arguments that stands for a table."""

    def source(self) -> list[str]:
        """Return the lines of the table."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Parse the lines in place."""
        where = self.get_source_info()[0]
        node = nodes.Element()
        self.state.nested_parse(StringList(self.source(), where), self.content_offset, node)
        return list(node.children)


class OptionTable(_Table):
    """All options."""

    def source(self) -> list[str]:
        """Return the lines of the table."""
        head = ("option", "meaning", "kind", "default", "values")
        return list_table("24 42 9 14 17", [head, *option_rows()])


class TransitionTable(_Table):
    """The moves of the client's side of the dialogue."""

    def source(self) -> list[str]:
        """Return the lines of the table."""
        return list_table("25 50 25", [("state", "what happens", "next state"), *transition_rows()])


class ServerErrorTable(_Table):
    """The codes of nsqd."""

    def source(self) -> list[str]:
        """Return the lines of the table."""
        return list_table("30 45 25", [("code", "meaning", "connection ends"),
                                       *server_error_rows()])


class SparkOptionTable(_Table):
    """The options of the Spark data source, to read or to write."""

    required_arguments = 1

    def source(self) -> list[str]:
        """Return the lines of the table."""
        options = {"read": READ_OPTIONS, "write": WRITE_OPTIONS}[self.arguments[0]]
        head = ("option", "meaning", "kind", "default")
        return list_table("22 48 16 14", [head, *spark_option_rows(options)])


class ModuleTable(_Table):
    """The modules of a package."""

    required_arguments = 1

    def source(self) -> list[str]:
        """Return the lines of the table."""
        return list_table("30 70", [("module", "contents"), *module_rows(self.arguments[0])])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives with Sphinx."""
    app.add_directive("option-table", OptionTable)
    app.add_directive("transition-table", TransitionTable)
    app.add_directive("server-error-table", ServerErrorTable)
    app.add_directive("spark-option-table", SparkOptionTable)
    app.add_directive("module-table", ModuleTable)
    return {"parallel_read_safe": True}
