"""A Flask app: pictures are announced by the view and "scaled" by a handler.

    flask --app app run              the views
    flask --app app nsq consume      the handlers
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from flask import Flask, current_app, request

from nsqclient import Message, NSQError
from nsqclient.contrib.flask import NSQ

nsq = NSQ()


def create_app() -> Flask:
    """The application factory."""
    app = Flask(__name__)
    app.config["THUMBNAILS"] = Path(os.environ.get("THUMBNAILS", "thumbnails"))
    app.config["THUMBNAILS"].mkdir(exist_ok=True)
    lookupd = os.environ.get("LOOKUPD_HTTP_ADDRESS")
    app.config["NSQCLIENT"] = {
        "NSQD_TCP_ADDRESSES": [os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")],
        "LOOKUPD_HTTP_ADDRESSES": [lookupd] if lookupd else [],
        # A request should fail before gunicorn's timeout of 30 s ends its worker.
        "OPTIONS": {"publish_timeout": 5, "lookupd_poll_interval": 2},
    }
    nsq.init_app(app)
    app.add_url_rule("/pictures", view_func=announce, methods=["POST"])
    app.add_url_rule("/thumbnails", view_func=count)
    app.add_url_rule("/ready", view_func=ready)
    return app


def announce() -> tuple[dict[str, str], int]:
    """POST /pictures: have a thumbnail made."""
    name = request.form["name"]
    nsq.publish("pictures", json.dumps({"name": name}).encode())
    return {"name": name}, 202


def count() -> dict[str, int]:
    """GET /thumbnails: how many there are."""
    return {"thumbnails": len(os.listdir(current_app.config["THUMBNAILS"]))}


def ready() -> tuple[dict[str, object], int]:
    """GET /ready, for a load balancer: 200 when pictures can be announced, else 503."""
    try:
        nsq.producer.ping(timeout=1)
    except NSQError as exc:
        return {"ready": False, "reason": str(exc)}, 503
    return {"ready": True}, 200


@nsq.handler("pictures", channel="thumbnails", workers=2)
def make_thumbnail(message: Message) -> None:
    """Scale a picture. A message that comes twice makes one thumbnail."""
    name = Path(json.loads(message.body)["name"]).name
    (current_app.config["THUMBNAILS"] / name).write_text("a thumbnail")
