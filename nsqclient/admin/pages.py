"""The HTML pages: their frames, which scripts fill with numbers from the live API."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, make_response, redirect, render_template, request
from werkzeug.wrappers import Response as AnyResponse

from nsqclient.admin.answers import check_channel, check_topic
from nsqclient.admin.context import context
from nsqclient.admin.guard import may_act, may_peek, user_of
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.version import __version__

blueprint = Blueprint("pages", __name__)

#: Ends of names by which topics of dead letters are known, as people write them.
DEAD_ENDS = ("dead", "dead_letter", "dead_letters", "deadletter", "deadletters", "dead-letter",
             "dead-letters", "dlq")


def source_of_dead_letters(topic: str) -> str:
    """The topic whose dead letters a topic holds, by its name; empty when it holds none."""
    name = topic.lower()
    for end in sorted(DEAD_ENDS, key=len, reverse=True):
        for joint in ".-_":
            if name.endswith(joint + end) and len(name) > len(end) + 1:
                return topic[:-len(end) - 1]
    return ""


def _page(template: str, title: str, **values: Any) -> Response:
    here = context()
    settings = here.settings
    response = make_response(render_template(
        template, title=title, base=settings.base_path, version=__version__,
        may_act=may_act(settings, request), may_peek=may_peek(settings, request),
        user=user_of(settings, request), has_lookupds=here.cluster.has_lookupds, **values,
    ))
    response.headers["Cache-Control"] = "no-store"
    return response


@blueprint.get("/")
@blueprint.get("/topics", endpoint="topics_too")
def topics() -> Response:
    """All topics."""
    return _page("topics.html", "Topics", here="topics")


@blueprint.get("/topics/<topic>")
def topic(topic: str) -> Response:
    """One topic."""
    check_topic(topic)
    return _page("topic.html", topic, here="topics", topic=topic,
                 source=source_of_dead_letters(topic))


@blueprint.get("/topics/<topic>/<channel>")
def channel(topic: str, channel: str) -> Response:
    """One channel."""
    check_topic(topic)
    check_channel(channel)
    return _page("channel.html", f"{topic} / {channel}", here="topics", topic=topic,
                 channel=channel, source=source_of_dead_letters(topic))


@blueprint.get("/nodes")
def nodes() -> Response:
    """All nsqds."""
    return _page("nodes.html", "Nodes", here="nodes")


@blueprint.get("/nodes/<node>")
def node(node: str) -> Response:
    """One nsqd."""
    node = printable(node, LONGEST_TEXT)
    return _page("node.html", node, here="nodes", node=node)


@blueprint.get("/lookup")
def lookup() -> Response:
    """The nsqlookupds, and a form to create."""
    return _page("lookup.html", "Lookup", here="lookup")


@blueprint.get("/producers")
def producers() -> Response:
    """The connections that published."""
    return _page("producers.html", "Producers", here="producers")


def error_page(answer: Response) -> Response:
    """An error's JSON answer as a page."""
    values = answer.get_json()
    page = _page("error.html", _TITLES.get(values["message"], values["message"]), here="",
                 hint=values.get("hint", ""))
    page.status_code = answer.status_code
    return page


_TITLES = {
    "NOT_FOUND": "There is no such page",
    "INVALID_TOPIC": "This is no topic name",
    "INVALID_CHANNEL": "This is no channel name",
    "FORBIDDEN_HOST": "Not under this name",
}


@blueprint.get("/counter")
def counter() -> AnyResponse:
    """nsqadmin's big number; the page of topics has it among its totals."""
    return redirect(f"{context().settings.base_path}/")
