"""Who may do what: the names by which the page is called, requests of other sites, the ACL header.

A browser sends what a foreign page tells it to send, with the user's network position. So a
request that changes something must come from our own pages or from no page at all, its body must
be declared as JSON, which a foreign form cannot do, and the name in its Host header must be ours,
which ends DNS rebinding.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from werkzeug.wrappers import Request

from nsqclient.admin.settings import AdminSettings
from nsqclient.display import printable

#: Methods that change nothing.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Largest request body: what nsqd takes as one message, in base64, and some more.
LARGEST_BODY = 2 * 1024 * 1024

#: Of a user, in characters.
_LONGEST_NAME = 200

#: No inline script, no inline style, nothing from elsewhere; nobody shows us in a frame.
SECURITY_HEADERS = {
    "Content-Security-Policy":
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """A request is not allowed. ``status`` is HTTP's, ``code`` the word for it."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.status = status
        self.code = code


def check_host(settings: AdminSettings, request: Request) -> None:
    """Raises Refused when the page is called by a name that is not ours."""
    if not settings.allowed_hosts:
        return
    host = _host_of(f"//{request.host}")
    if not host:
        given = printable(request.headers.get("Host", ""), _LONGEST_NAME)
        raise Refused(403, "FORBIDDEN_HOST",
                      f"the Host header names no host: {given!r}" if given else
                      "the request has no Host header")
    if host not in settings.allowed_hosts:
        raise Refused(
            403, "FORBIDDEN_HOST",
            f"this page is not known as {host!r}; start nsqadmin with --allowed-host={host}"
            " if it should be",
        )


def _host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:  # brackets that do not fit
        return ""


def _netloc_of(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def check_change(request: Request) -> None:
    """Raises Refused when a request that changes something may come from a foreign page."""
    origin = request.headers.get("Origin")
    if origin is not None and _netloc_of(origin) != request.host.lower():
        raise Refused(403, "FORBIDDEN_ORIGIN", f"the request comes from a page of {origin}; a"
                      " proxy in front must hand on the Host header")
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise Refused(403, "FORBIDDEN_ORIGIN", "the request comes from a page of another site")
    has_body = bool(request.content_length) or "Transfer-Encoding" in request.headers
    # A foreign page cannot send DELETE or PUT without asking first; POST it can.
    if (has_body or request.method == "POST") and request.mimetype != "application/json":
        raise Refused(415, "UNSUPPORTED_MEDIA_TYPE", "send the body as JSON, with the header"
                      " Content-Type: application/json")


def user_of(settings: AdminSettings, request: Request) -> str:
    """Who asks, as far as the proxy in front said: the ACL header, or basic authentication.

    For logs and pages alone: nobody has checked it, and it is shown without control characters.
    """
    named = request.headers.get(settings.acl_http_header, "")
    try:
        basic = request.authorization
    except ValueError:  # of base64 that is none
        basic = None
    if not named and basic is not None and basic.type == "basic":
        named = basic.username or ""
    return printable(named, _LONGEST_NAME)


def may_act(settings: AdminSettings, request: Request) -> bool:
    """Tell whether the request's user may change things."""
    if settings.admin_users:
        return request.headers.get(settings.acl_http_header, "") in settings.admin_users
    return settings.allow_actions


def may_peek(settings: AdminSettings, request: Request) -> bool:
    """Tell whether the request's user may see bodies of messages."""
    if not settings.allow_peek:
        return False
    return not settings.admin_users or may_act(settings, request)


def check_may_act(settings: AdminSettings, request: Request) -> None:
    """Raises Refused when the request's user may change nothing."""
    if not may_act(settings, request):
        raise Refused(403, "FORBIDDEN", _how_to_allow(settings))


def check_may_peek(settings: AdminSettings, request: Request) -> None:
    """Raises Refused when the request's user may not see messages."""
    if not may_peek(settings, request):
        raise Refused(403, "FORBIDDEN", "this page shows no messages: start nsqadmin with"
                      " --allow-peek" if not settings.allow_peek else _how_to_allow(settings))


def _how_to_allow(settings: AdminSettings) -> str:
    if settings.admin_users:
        return f"the header {settings.acl_http_header} names no --admin-user"
    return "this page is read-only: start nsqadmin with --allow-actions, or name an --admin-user"
