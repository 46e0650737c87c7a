"""Asks a nsqlookupd which nsqds have a topic. No thread of its own.

Source: client guide, "Discovery".
"""

from __future__ import annotations

import logging
from typing import Any, TypeGuard
from urllib.parse import urlsplit, urlunsplit

import requests

from nsqclient.config import Config
from nsqclient.errors import ConfigError, DiscoveryError
from nsqclient.runtime.transport import format_address, parse_address

logger = logging.getLogger("nsqclient.discovery")

_ACCEPT = "application/vnd.nsq; version=1.0"


def lookup_url(address: object, endpoint: str = "lookup") -> str:
    """Return the URL of an endpoint for a ``host:port`` or an ``http(s)://`` address.

    A path in the address stands for ``/lookup``, as with go-nsq.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(address, str):
        raise ConfigError(f"lookupd_http_address must be a string, not {address!r}")
    if "://" not in address:
        parse_address(address, "lookupd_http_address")
        address = f"http://{address}"
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of brackets, or of a port that is none
        usable = False
    if not usable:
        raise ConfigError(f"lookupd_http_address {address!r}: give host:port or http://host:port")
    path = parts.path if parts.path not in ("", "/") else "/lookup"
    if endpoint != "lookup":
        path = path.removesuffix("/lookup") + f"/{endpoint}"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def nodes(address: str, config: Config) -> list[str]:
    """Ask one nsqlookupd for the ``host:port`` of every nsqd it knows. Else like ``lookup``."""
    return _ask(address, lookup_url(address, "nodes"), {}, config)


def lookup(address: str, topic: str, config: Config) -> list[str]:
    """Ask one nsqlookupd; return the ``host:port`` of every nsqd that has the topic.

    An unknown topic gives an empty list: it is "not yet", no error.

    Blocks: at most ``lookupd_poll_timeout`` between two reads.

    Raises:
        DiscoveryError: it cannot be reached, or what it says is no answer to a lookup.
    """
    return _ask(address, lookup_url(address), {"topic": topic}, config)


def _ask(address: str, url: str, params: dict[str, str], config: Config) -> list[str]:
    # As bytes, because a str would have to be Latin-1.
    headers = {"Accept": _ACCEPT.encode(), "User-Agent": config.user_agent.encode()}
    if config.auth_secret and config.skip_lookupd_authorization:
        headers["Authorization"] = f"Bearer {config.auth_secret}".encode()
    timeout = (min(config.dial_timeout, config.lookupd_poll_timeout), config.lookupd_poll_timeout)
    try:
        # trust_env=False: a proxy meant for the internet must not see requests to nsqlookupd,
        # and ~/.netrc must not replace the Authorization header.
        with requests.Session() as session:
            session.trust_env = False
            response = session.get(url, params=params, headers=headers, timeout=timeout)
            if response.status_code == 404 and "TOPIC_NOT_FOUND" in response.text:
                logger.debug("nsqlookupd %s does not know %s yet", address, params)
                return []
            if response.status_code != 200:
                raise DiscoveryError(
                    address, f"HTTP {response.status_code}: {response.text[:200]!r}"
                )
            return _read_producers(address, response.json())
    except (requests.exceptions.JSONDecodeError, RecursionError) as exc:
        raise DiscoveryError(address, "its answer is no JSON: is this its HTTP port?") from exc
    except requests.exceptions.InvalidHeader:
        # "from None": the text of that exception shows the secret.
        raise DiscoveryError(
            address, "auth_secret or user_agent has characters that no HTTP header can carry"
        ) from None
    except requests.exceptions.ConnectTimeout as exc:
        raise DiscoveryError(address, f"no connection within {timeout[0]:g} s") from exc
    except requests.exceptions.Timeout as exc:
        raise DiscoveryError(
            address, f"no answer within {config.lookupd_poll_timeout:g} s"
        ) from exc
    except requests.exceptions.RequestException as exc:
        raise DiscoveryError(address, _reason(exc)) from exc


def _reason(exc: requests.exceptions.RequestException) -> str:
    text = str(exc)
    if "BadStatusLine" in text or "Connection aborted" in text:
        return (
            "the answer is not HTTP: this looks like its TCP port (4160 by default), not the"
            " HTTP port (4161)"
        )
    if "NameResolutionError" in text or "Name or service not known" in text:
        return "host unknown"
    if "refused" in text:
        return "connection refused: is nsqlookupd running there?"
    return text


def _read_producers(address: str, data: Any) -> list[str]:
    """Read the answer, also in the wrapping of nsqlookupd before 1.0."""
    if isinstance(data, dict) and isinstance(data.get("data"), dict):
        data = data["data"]
    producers = data.get("producers") if isinstance(data, dict) else None
    if not isinstance(producers, list):
        raise DiscoveryError(address, f"its answer has no list of producers: {data!r:.200}")
    found = []
    for producer in producers:
        host = producer.get("broadcast_address") if isinstance(producer, dict) else None
        port = producer.get("tcp_port") if isinstance(producer, dict) else None
        if not isinstance(host, str) or not host or not _is_port(port):
            logger.warning("nsqlookupd %s lists an unusable producer: %r", address, producer)
            continue
        found.append(format_address(host, port))
    return found


def _is_port(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536
