"""Around every answer: headers that keep a browser from doing more than we mean, and the last resort.

What nobody handled is a bug: its traceback goes to the log under a correlation id, and the caller gets that id and
nothing else.
"""

import secrets

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fieldpost.core.errors import problem_type
from fieldpost.link.codec import encode
from fieldpost.link.messages import Refusal

log = structlog.get_logger()

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
TLS_HEADERS = {"Strict-Transport-Security": "max-age=31536000"}
"""Whoever came by HTTPS comes by nothing else for a year; browsers heed it where the certificate is good."""
INTERNAL_CODE = "internal"


class ResponseGuard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in (SECURITY_HEADERS | (TLS_HEADERS if scope["scheme"] == "https" else {})).items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._app(scope, receive, send_guarded)
        except Exception as error:
            correlation_id = report_bug(error, path=scope["path"], method=scope["method"])
            if has_begun:
                # Half an answer is out: ending the connection is the only way left to say that it is not whole.
                raise
            wants_page = "text/html" in Headers(scope=scope).get("accept", "")
            await _sorry(correlation_id, wants_page)(scope, receive, send_guarded)


def report_bug(error: Exception, **where: object) -> str:
    """Log what nobody expected, with its traceback; the id under which it can be found."""
    correlation_id = secrets.token_hex(8)
    log.error("request.failed", correlation_id=correlation_id, exc_info=error, **where)
    return correlation_id


def internal_refusal(correlation_id: str, seq: int | None) -> bytes:
    """The same on the link: the sender keeps what it has and tries again later."""
    return encode(Refusal(INTERNAL_CODE, f"central made a mistake; see its log for {correlation_id}", seq, wait_s=30))


def _sorry(correlation_id: str, wants_page: bool) -> Response:
    if wants_page:
        # Plain on purpose: whatever failed may be what pages are made with.
        title, text = "Internal error", f"Central made a mistake. Its log tells more, under {correlation_id}."
        return HTMLResponse(f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{text}", 500)
    text = (
        f'{{"type":"{problem_type(INTERNAL_CODE)}","title":"Internal error","status":500,'
        f'"code":"{INTERNAL_CODE}",'
        f'"detail":"central made a mistake; its log tells more","correlation_id":"{correlation_id}"}}'
    )
    return Response(text, 500, media_type="application/problem+json")
