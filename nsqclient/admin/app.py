"""``create_app``: the admin page as a WSGI application."""

from __future__ import annotations

import logging

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter

from nsqclient.admin import config_api, live_api, metrics, original_api, pages
from nsqclient.admin.answers import error, error_for
from nsqclient.admin.context import Context
from nsqclient.admin.guard import (
    LARGEST_BODY, SAFE_METHODS, SECURITY_HEADERS, check_change, check_host,
)
from nsqclient.display import printable

logger = logging.getLogger("nsqclient.admin")

_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_BIG"}


class _Segment(BaseConverter):
    """Part of a path: werkzeug's own refuses nothing we need, but percent signs are decoded."""

    regex = "[^/]+"


def create_app(admin: Context) -> Flask:
    """Build the application. The caller closes ``admin`` when it has stopped.

    Behind another WSGI server: one process with threads, since rates and their history live in
    the process.
    """
    base = admin.settings.base_path
    app = Flask("nsqclient.admin", static_url_path=f"{base}/static")
    app.url_map.converters["default"] = _Segment
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY
    admin.register(app.extensions)
    for module in (original_api, live_api, config_api, metrics, pages):
        blueprint = module.blueprint
        app.register_blueprint(blueprint, url_prefix=base + (blueprint.url_prefix or ""))

    @app.before_request
    def check() -> Response | None:
        try:
            check_host(admin.settings, request)
            if request.method not in SAFE_METHODS:
                check_change(request)
        except Exception as exc:
            return _answer_to(exc)
        return None

    @app.after_request
    def add_headers(response: Response) -> Response:
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.errorhandler(Exception)
    def on_error(exc: Exception) -> Response:
        return _answer_to(exc)

    return app


def _answer_to(exc: Exception) -> Response:
    if isinstance(exc, HTTPException) and 300 <= (exc.code or 0) < 400:
        return Response(status=exc.code, headers=list(exc.get_response().headers))
    answer = error_for(exc)
    if answer is None and isinstance(exc, HTTPException):
        code = exc.code or 500
        answer = error(code, _CODES.get(code, exc.name.upper().replace(" ", "_")))
    if answer is None:
        logger.error("%s %s failed", printable(request.method), printable(request.path),
                     exc_info=exc)
        answer = error(500, "INTERNAL_ERROR", "the log of nsqadmin says more")
    # A person who followed a link; scripts and our own pages ask for JSON or anything.
    if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
        return pages.error_page(answer)
    return answer
