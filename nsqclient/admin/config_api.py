"""``/config``: nsqadmin's options that can be changed while it runs."""

from __future__ import annotations

import ipaddress
import json
import logging
from typing import Any

from flask import Blueprint, Response, request

from nsqclient.admin.answers import BadRequest
from nsqclient.admin.context import context
from nsqclient.admin.guard import Refused, check_may_act
from nsqclient.errors import ConfigError
from nsqclient.protocol.peer_json import read_json

blueprint = Blueprint("config_api", __name__)

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING,
           "error": logging.ERROR, "fatal": logging.CRITICAL}


@blueprint.route("/config/<option>", methods=["GET", "PUT"])
def option(option: str) -> Response:
    """Return an option, or change it first: ``nsqlookupd_http_addresses`` or ``log_level``."""
    _check_address()
    if option not in ("nsqlookupd_http_addresses", "log_level"):
        raise BadRequest("INVALID_OPTION", "nsqlookupd_http_addresses or log_level")
    if request.method == "PUT":
        check_may_act(context().settings, request)
        if not request.get_data():
            raise BadRequest("INVALID_VALUE", "the body is empty", 413)
        _set_lookupds() if option == "nsqlookupd_http_addresses" else _set_level()
    return Response(json.dumps(_value(option)), content_type="application/json; charset=utf-8")


def _check_address() -> None:
    network = context().settings.allow_config_from_cidr
    if not network:
        return
    try:
        address = ipaddress.ip_address(request.remote_addr or "")
    except ValueError:
        raise BadRequest("INVALID_REMOTE_ADDR") from None
    if address not in ipaddress.ip_network(network, strict=False):
        raise Refused(403, "FORBIDDEN", f"/config answers {network} alone")


def _value(option: str) -> Any:
    if option == "nsqlookupd_http_addresses":
        return list(context().cluster.lookupds())
    level = logging.getLogger("nsqclient").getEffectiveLevel()
    return next((name for name, value in _LEVELS.items() if level <= value), "fatal")


def _set_lookupds() -> None:
    cluster = context().cluster
    if not cluster.has_lookupds:
        raise BadRequest("INVALID_OPTION", "this page asks nsqds directly")
    try:
        addresses = read_json(request.get_data())
        if not isinstance(addresses, list) or not addresses:
            raise ValueError("give a list of addresses")
        cluster.set_lookupds(addresses)
    except (ValueError, ConfigError) as exc:
        raise BadRequest("INVALID_VALUE", str(exc)) from None
    context().collector.ask_soon()


def _set_level() -> None:
    level = request.get_data(as_text=True).strip().strip('"').lower()
    if level not in _LEVELS:
        raise BadRequest("INVALID_VALUE", f"one of {', '.join(_LEVELS)}")
    logging.getLogger("nsqclient").setLevel(_LEVELS[level])
