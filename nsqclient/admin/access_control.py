"""Permissions: allowed host names, requests of other sites, the ACL header.

A browser also sends the requests of other sites, from the user's position in the network. So a
request that changes something must come from our own pages or from no page at all. Its body must be
declared as JSON, which a form of another site cannot do. Its Host header must be a known name,
which prevents DNS rebinding.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from werkzeug.wrappers import Request

from nsqclient.admin.settings import AdminSettings
from nsqclient.display import printable
from nsqclient.errors import NSQError

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Largest request body: a message of nsqd's default maximum size in base64, plus some room.
LARGEST_BODY = 2 * 1024 * 1024

_LONGEST_NAME = 200

#: No inline scripts or styles, nothing from other hosts, no display in frames.
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


class RequestError(NSQError):
    """A request is rejected, with an HTTP status, nsqadmin's code, and a hint for the user.

    Every function that serves a request may raise it.
    """

    def __init__(self, status: int, code: str, hint: str = "") -> None:
        super().__init__(f"{code}: {hint}")
        self.status = status
        self.code = code
        self.hint = hint


def check_host(settings: AdminSettings, request: Request) -> None:
    if not settings.allowed_hosts:
        return
    if "Host" not in request.headers:
        raise RequestError(403, "FORBIDDEN_HOST", "the request has no Host header")
    host = (_split(f"//{request.host}").hostname or "").lower()
    if not host:
        given = printable(request.headers["Host"], _LONGEST_NAME)
        raise RequestError(403, "FORBIDDEN_HOST", f"invalid Host header: {given!r}" if given else
                           "the Host header is empty")
    if host not in settings.allowed_hosts:
        raise RequestError(
            403, "FORBIDDEN_HOST",
            f"this page is not known as {host!r}; start nsqadmin with --allowed-host={host}"
            " if it should be",
        )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # brackets that do not match
        return urlsplit("")


def check_change(request: Request) -> None:
    """Reject requests that change something and may come from another site."""
    origin = request.headers.get("Origin")
    if origin is not None and not _is_own(origin, request.headers.get("Host", "")):
        raise RequestError(403, "FORBIDDEN_ORIGIN", f"the request comes from a page of {origin}. If"
                           " that is this page, its proxy must forward the Host header")
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise RequestError(403, "FORBIDDEN_ORIGIN",
                           "the request comes from a page of another site")
    has_body = bool(request.content_length) or "Transfer-Encoding" in request.headers
    # Another site cannot send DELETE or PUT without a preflight, but it can send POST.
    if (has_body or request.method == "POST") and request.mimetype != "application/json":
        raise RequestError(415, "UNSUPPORTED_MEDIA_TYPE", "send the body as JSON, with the header"
                           " Content-Type: application/json")


def _is_own(origin: str, host: str) -> bool:
    """Compare the origin of a page with the Host header.

    Ports 80 and 443 count as no port. Browsers omit the default port; proxies may send it, or the
    other scheme's if an outer proxy ends TLS.
    """
    try:
        page, here = _split(origin), _split(f"//{host}")
        ports = [None if port in (80, 443) else port for port in (page.port, here.port)]
    except ValueError:  # the port is not a number
        return False
    return bool(page.hostname) and page.hostname == here.hostname and ports[0] == ports[1]


def user_of(settings: AdminSettings, request: Request) -> str:
    """Return the user for logs and pages; basic authentication is not checked here."""
    named = request.headers.get(settings.acl_http_header, "")
    try:
        basic = request.authorization
    except ValueError:  # invalid base64
        basic = None
    if not named and basic is not None and basic.type == "basic":
        named = basic.username or ""
    return printable(named, _LONGEST_NAME)


def may_act(settings: AdminSettings, request: Request) -> bool:
    if settings.admin_users:
        return request.headers.get(settings.acl_http_header, "") in settings.admin_users
    return settings.allow_actions


def may_peek(settings: AdminSettings, request: Request) -> bool:
    if not settings.allow_peek:
        return False
    return not settings.admin_users or may_act(settings, request)


def check_may_act(settings: AdminSettings, request: Request) -> None:
    if not may_act(settings, request):
        raise RequestError(403, "FORBIDDEN", _how_to_allow(settings))


def check_may_peek(settings: AdminSettings, request: Request) -> None:
    if not may_peek(settings, request):
        raise RequestError(403, "FORBIDDEN", "this page shows no messages: start nsqadmin with"
                           " --allow-peek" if not settings.allow_peek else _how_to_allow(settings))


def _how_to_allow(settings: AdminSettings) -> str:
    if settings.admin_users:
        return f"the user in the header {settings.acl_http_header} is not an --admin-user"
    return "this page is read-only: start nsqadmin with --allow-actions, or name an --admin-user"
