"""``create_app``: the admin page as a WSGI application."""

from __future__ import annotations

import logging

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter

from nsqclient.admin import actions_api, metrics, nsqadmin_api, pages, ui_api
from nsqclient.admin.access_control import (
    LARGEST_BODY, SAFE_METHODS, SECURITY_HEADERS, check_change, check_host,
)
from nsqclient.admin.context import Context
from nsqclient.admin.responses import error_response, response_for
from nsqclient.display import printable

logger: logging.Logger = logging.getLogger("nsqclient.admin")

_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_BIG"}


class _Segment(BaseConverter):
    """A segment of a path; percent signs are decoded."""

    regex = "[^/]+"


def create_app(admin: Context) -> Flask:
    """Build the application. The caller closes ``admin`` after the server has stopped.

    Within another WSGI server use one process with threads: the process keeps the rates.
    """
    base = admin.settings.base_path
    app = Flask("nsqclient.admin", static_url_path=f"{base}/static")
    app.url_map.converters["default"] = _Segment
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY
    admin.register(app.extensions)
    for module in (nsqadmin_api, ui_api, actions_api, metrics, pages):
        blueprint = module.blueprint
        app.register_blueprint(blueprint, url_prefix=base + (blueprint.url_prefix or ""))

    @app.before_request
    def check() -> None:
        check_host(admin.settings, request)
        if request.method not in SAFE_METHODS:
            check_change(request)

    @app.after_request
    def add_headers(response: Response) -> Response:
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        if logger.isEnabledFor(logging.DEBUG):  # a page sends a request every two seconds
            logger.debug("%s %s %s %s", request.remote_addr, request.method,
                         printable(request.full_path.rstrip("?")), response.status_code)
        return response

    app.register_error_handler(Exception, _error_response)
    return app


def _error_response(exc: Exception) -> Response:
    if isinstance(exc, HTTPException) and 300 <= (exc.code or 0) < 400:
        return Response(status=exc.code, headers=list(exc.get_response().headers))
    response = response_for(exc)
    if response is None and isinstance(exc, HTTPException):
        code = exc.code or 500
        response = error_response(code, _CODES.get(code, exc.name.upper().replace(" ", "_")))
    if response is None:
        logger.error("%s %s failed", printable(request.method), printable(request.path),
                     exc_info=exc)
        response = error_response(500, "INTERNAL_ERROR", "see the log of nsqadmin")
    # A person followed a link; scripts and our own pages accept JSON or anything.
    if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
        return pages.error_page(response)
    return response
