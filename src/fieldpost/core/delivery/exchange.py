"""Exchanges: the request and response of one attempt over HTTP, kept with the attempt for the receiver's developer."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from fieldpost.core.frozen import frozen

BODY_BYTES_KEPT = 1024
HEADERS_KEPT = 40
HEADER_CHARACTERS_KEPT = 256


@frozen(kw_only=True)
class HttpTry:
    """One request within an attempt."""

    offset_ms: int
    """When it began, after the start of the attempt."""
    duration_ms: int
    status: int | None = None
    error: str | None = None
    """Why there was no status."""
    phase: str | None = None
    """Where a request without a status failed."""


@frozen(kw_only=True)
class Exchange:
    """The tries of an attempt to one URL, and the last response."""

    url: str
    tries: tuple[HttpTry, ...] = ()
    request_headers: Mapping[str, str] = field(default_factory=dict)
    """Without the values of signature and credentials."""
    status: int | None = None
    response_headers: Mapping[str, str] | None = field(default_factory=dict)
    response_body: str | None = ""
    """The first kilobyte. Headers and body are None for readers who may not see them."""


def scrubbed_exchange(exchange: Exchange, scrub: Callable[[str], str]) -> Exchange:
    """The exchange with `scrub` applied to all texts from the other side, which may repeat a secret."""
    tries = tuple(replace(one, error=scrub(one.error)) if one.error else one for one in exchange.tries)
    headers = {name: scrub(value) for name, value in (exchange.response_headers or {}).items()}
    body = scrub(exchange.response_body or "")
    if (tries, headers, body) == (exchange.tries, exchange.response_headers, exchange.response_body):
        return exchange  # as most are
    return replace(exchange, tries=tries, response_headers=headers, response_body=body)


def without_response(exchange: Exchange) -> Exchange:
    """The exchange without the receiver's headers and body, which are for administrators and the owner (DEC-67)."""
    return replace(exchange, response_headers=None, response_body=None)
