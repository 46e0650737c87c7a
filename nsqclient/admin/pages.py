"""The HTML pages: templates that scripts fill with numbers from the UI API."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, redirect, render_template, request
from werkzeug.wrappers import Response as AnyResponse

from nsqclient.admin.access_control import may_act, may_peek, user_of
from nsqclient.admin.context import context
from nsqclient.admin.messages import source_of_dead_letters
from nsqclient.display import LONGEST_TEXT, printable
from nsqclient.version import __version__

blueprint: Blueprint = Blueprint("pages", __name__)


def _page(template: str, title: str, **values: Any) -> Response:
    here = context()
    settings = here.settings
    html = render_template(
        template, title=title, base=settings.base_path, version=__version__,
        may_act=may_act(settings, request), may_peek=may_peek(settings, request),
        user=user_of(settings, request), has_lookupds=here.cluster.has_lookupds, **values)
    return Response(html, headers={"Cache-Control": "no-store"})


@blueprint.get("/")
@blueprint.get("/topics", endpoint="topics_too")
def topics() -> Response:
    return _page("topics.html", "Topics", here="topics")


@blueprint.get("/topics/<topic>")
@blueprint.get("/topics/<topic>/<channel>")
def subject(topic: str, channel: str = "") -> Response:
    return _page("channel.html" if channel else "topic.html",
                 f"{topic} / {channel}" if channel else topic, here="topics", topic=topic,
                 channel=channel, source=source_of_dead_letters(topic))


@blueprint.get("/nodes/<node>")
def node(node: str) -> Response:
    node = printable(node, LONGEST_TEXT)
    return _page("node.html", node, here="nodes", node=node)


@blueprint.get("/<any(nodes, lookup, producers, consumers, doctor):name>")
def plain(name: str) -> Response:
    template = "connections" if name in ("producers", "consumers") else name
    return _page(f"{template}.html", name.capitalize(), here=name)


@blueprint.get("/counter")
def counter() -> AnyResponse:
    """Redirect nsqadmin's page of the message count to the topics."""
    return redirect(f"{context().settings.base_path}/")
