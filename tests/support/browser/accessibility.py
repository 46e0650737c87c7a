"""Accessibility checks: in a browser of the visible page, and of the HTML as it is served."""

from html.parser import HTMLParser
from pathlib import Path

#: An expression: complaints about a page.
CHECK_SHOWN = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")

_VOID = frozenset(
    "area base br col embed hr img input link meta param rect circle path source wbr".split())
_FIELDS = frozenset(("input", "select", "textarea"))


class Html(HTMLParser):
    """Parses a page; ``complaints()`` returns its errors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open: list[tuple[str, dict[str, str], list[str]]] = []
        self._found: list[str] = []
        self._ids: list[str] = []
        self._labelled: set[str] = set()
        self._named_after: list[str] = []
        self._fields: list[dict[str, str]] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.append((tag, values))
        if "id" in values:
            self._ids.append(values["id"])
        if tag == "label":
            self._labelled.add(values.get("for", ""))
        if "aria-labelledby" in values:
            self._named_after.append(values["aria-labelledby"])
        if tag in _FIELDS:
            self._fields.append(values)
        if any(name.startswith("on") or name == "style" for name in values):
            self._found.append(f"inline script or style: <{tag} {values}>")
        if tag == "script" and "src" not in values:
            self._found.append("inline script")
        for name in ("src", "href"):
            if values.get(name, "").startswith(("http:", "https:", "//")):
                self._found.append(f"loads from elsewhere: {values[name]}")
        if tag not in _VOID:
            self._open.append((tag, values, []))

    def handle_data(self, data: str) -> None:
        for _, _, texts in self._open:
            texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self._open or self._open[-1][0] != tag:
            self._found.append(f"</{tag}> closes {self._open[-1][0] if self._open else 'nothing'}")
            return
        _, values, texts = self._open.pop()
        has_name = "".join(texts).strip() or values.get("aria-label")
        if tag in ("button", "a", "h1", "h2", "th", "label") and not has_name:
            self._found.append(f"<{tag} {values}> has no text")

    def complaints(self) -> list[str]:
        found = list(self._found)
        found += [f"<{tag}> is never closed" for tag, _, _ in self._open]
        found += [f"id {each} twice" for each in set(self._ids) if self._ids.count(each) > 1]
        found += [f"named after no id: {each}" for each in self._named_after
                  if each not in self._ids]
        found += [f"no label: {field}" for field in self._fields
                  if field.get("id") not in self._labelled and "aria-label" not in field]
        names = [tag for tag, _ in self.tags]
        for tag in ("html", "title", "h1", "main", "header"):
            if names.count(tag) != 1:
                found.append(f"<{tag}> is there {names.count(tag)} times")
        if dict(self.tags)["html"].get("lang") != "en":
            found.append("the language is not said")
        return found
