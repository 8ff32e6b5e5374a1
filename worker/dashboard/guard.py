"""Before every request: the host it names, where it comes from and who makes it. And the headers of answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contracts.codec import encode
from worker.dashboard.people import People
from worker.dashboard.people_records import Fault

HEALTH = ("/healthz", "/readyz")

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_PORT = re.compile(r":\d{1,5}$")


class Guard:
    """Refuses what is not meant for us, tells who asks, and adds the headers that keep pages to themselves.

    `hosts` are the names under which the dashboard may be asked for: another name in a request means that somebody
    else's name was pointed at our address (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, *, people: People, hosts: Iterable[str]) -> None:
        self._app, self._people = app, people
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's life."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                if not any(name == b"cache-control" for name, _ in given):
                    given.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*given, *_HEADERS]}
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        peer = (scope.get("client") or ("", 0))[0]
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await answer(send_with_headers, *refusal)
            return
        scope.setdefault("state", {})["person"] = self._people.who(headers, peer)
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, Fault] | None:
        path, method = scope["path"], scope["method"]
        if path in HEALTH:
            return None
        host = headers.get("host", "").lower()
        if _PORT.sub("", host) not in self._hosts:
            return 421, Fault(error="wrong_host", message=f"this dashboard does not answer for host {host[:100]!r}")
        site = headers.get("sec-fetch-site")
        if method not in ("GET", "HEAD"):
            return self._refusal_to_act(headers, site, host)
        if path.startswith("/api/") and site not in (None, "same-origin", "none"):
            return 403, Fault(error="cross_site", message="another site's page may not read this")
        return None

    @staticmethod
    def _refusal_to_act(headers: Mapping[str, str], site: str | None, host: str) -> tuple[int, Fault] | None:
        origin = headers.get("origin")
        own = origin is None or origin.partition("://")[2].lower() == host
        if not own or site not in (None, "same-origin"):
            return 403, Fault(error="cross_site", message="another site's page may not act here")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, Fault(error="not_json", message="the body must be application/json")
        return None


async def answer(send: Send, status: int, body: Any) -> None:
    """One whole JSON answer."""
    data = encode(body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
