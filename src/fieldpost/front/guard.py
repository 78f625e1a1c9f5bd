"""The outermost layer of the application: security headers, and the answer to unhandled exceptions.

An unhandled exception is a bug. Its traceback goes to the log with a correlation id, and the caller gets only that id.
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
"""HSTS: for a year, browsers that accepted the certificate use HTTPS only."""
INTERNAL_CODE = "internal"


class ResponseGuard:
    """Adds security headers to every answer and answers unhandled exceptions with 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_started = False

        async def send_guarded(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                headers = MutableHeaders(scope=message)
                for name, value in (SECURITY_HEADERS | (TLS_HEADERS if scope["scheme"] == "https" else {})).items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._app(scope, receive, send_guarded)
        except Exception as error:
            correlation_id = report_bug(error, path=scope["path"], method=scope["method"])
            if is_started:
                # Part of the answer is sent: only closing the connection can show that it is incomplete.
                raise
            wants_page = "text/html" in Headers(scope=scope).get("accept", "")
            await _internal_error(correlation_id, wants_page)(scope, receive, send_guarded)


def report_bug(error: Exception, **where: object) -> str:
    """Log an unexpected exception with its traceback; returns the correlation id of the log line."""
    correlation_id = secrets.token_hex(8)
    log.error("request.failed", correlation_id=correlation_id, exc_info=error, **where)
    return correlation_id


def internal_refusal(correlation_id: str, seq: int | None) -> bytes:
    """The refusal for an unexpected exception on the link: the sender keeps its messages and retries later."""
    return encode(Refusal(INTERNAL_CODE, f"internal error; see {correlation_id} in central's log", seq, wait_s=30))


def _internal_error(correlation_id: str, wants_page: bool) -> Response:
    if wants_page:
        # Plain HTML on purpose: the template engine itself may have failed.
        title, text = "Internal error", f"Something went wrong in central. See {correlation_id} in its log."
        return HTMLResponse(f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{text}", 500)
    text = (
        f'{{"type":"{problem_type(INTERNAL_CODE)}","title":"Internal error","status":500,'
        f'"code":"{INTERNAL_CODE}",'
        f'"detail":"internal error; see the correlation id in the log of central","correlation_id":"{correlation_id}"}}'
    )
    return Response(text, 500, media_type="application/problem+json")
