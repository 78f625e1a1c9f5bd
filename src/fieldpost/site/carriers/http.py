"""The carrier of external calls: one HTTP request per attempt, by the guarded client.

Each attempt sends the call's id as `Idempotency-Key`, because an attempt without a response may have been carried out.
Secrets are read for each attempt and removed from error texts before these are stored.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from yarl import URL

from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.core.sites.forwarding import CarrierAnswer, NotNow, Refused, Taken
from fieldpost.core.sites.http_status import Meaning, meaning_of
from fieldpost.core.sites.message import Category, Message
from fieldpost.core.text import truncate
from fieldpost.outbound.client import HttpAnswer, HttpClient, NoAnswer
from fieldpost.outbound.guard import AddressGuard, Blocked, Resolve
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.resolver import SystemResolver
from fieldpost.outbound.retry_after import retry_after_s
from fieldpost.site.carriers.payloads import ExternalCall, decode_call
from fieldpost.site.config.external import External
from fieldpost.site.config.target import tls_context

ANSWER_BYTES_MAX = 16 * 1024
"""How much of a response is read: only its status counts, and an excerpt of a refusal."""
EXCERPT_BYTES_MAX = 300
STALE_MAX = 3
"""How many idle connections in a row may turn out to be closed."""


class ExternalCarrier:
    """Makes external calls. Keeps connections open for reuse; used from one event loop."""

    category = Category.EXTERNAL_CALL

    def __init__(self, clock: Clock, options: OutboundOptions | None = None, *, resolve: Resolve | None = None) -> None:
        self._clock = clock
        options = options or OutboundOptions()
        resolver = resolve or SystemResolver(options.lookup_timeout_s, clock=clock)
        self._options = options
        self._guard = AddressGuard("admin", options.allowed(), resolver)
        self._clients: dict[tuple[Path | None, int], HttpClient] = {}

    async def attempt(self, message: Message, definition: External | None) -> CarrierAnswer:
        """Make one attempt within the definition's timeout. External failures are answers, never exceptions."""
        if definition is None:
            return Refused("external.undefined", f"site.toml no longer defines the external system {message.target!r}")
        try:
            call = decode_call(message.payload)
        except InvalidInput as error:
            return Refused(error.code, error.message)
        try:
            secrets = definition.secrets()
            client = self._client(definition.ca_path)
        except ConfigError as error:
            # A problem of this site's files, not of the call: it waits until they are fixed.
            return NotNow(str(error))
        headers = _headers(definition, secrets, call, message.message_id)
        scrub = Scrubber(secrets.values())
        try:
            answer = await self._request(client, definition, call, headers)
        except Blocked as blocked:
            return Refused("external.blocked", str(blocked))
        except NoAnswer as error:
            unsure = "; the call may have been carried out" if error.is_sent else ""
            return NotNow(scrub(f"{definition.name}: {error.reason}{unsure}"))
        return self._judge(definition, answer, scrub)

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    async def _request(
        self, client: HttpClient, definition: External, call: ExternalCall, headers: Mapping[str, str]
    ) -> HttpAnswer:
        url = call_url(definition.base, call)
        ends_at = self._clock.monotonic() + definition.timeout_s
        stale = 0
        while True:
            try:
                return await client.request(
                    call.method,
                    url,
                    headers=headers,
                    body=call.content,
                    timeout_s=max(ends_at - self._clock.monotonic(), 0.001),
                    answer_bytes_max=ANSWER_BYTES_MAX,
                )
            except NoAnswer as error:
                stale += 1
                # A connection that was closed while idle says nothing about the system: reconnecting costs no attempt.
                if not error.is_stale or stale > STALE_MAX:
                    raise

    def _judge(self, definition: External, answer: HttpAnswer, scrub: Scrubber) -> CarrierAnswer:
        status = answer.status
        match meaning_of(status):
            case Meaning.TAKEN:
                return Taken(http_status=status)
            case Meaning.NOT_NOW:
                wait_s = retry_after_s(answer.headers.get("Retry-After"), self._clock.now())
                return NotNow(_excerpt(definition, answer, scrub), wait_s, http_status=status)
            case Meaning.REFUSED:
                code = "external.redirected" if status < 400 else "external.refused"
                return Refused(code, _excerpt(definition, answer, scrub), http_status=status)

    def _client(self, ca_path: Path | None) -> HttpClient:
        """The client that trusts this CA file; a new one if the file has changed."""
        changed = 0
        if ca_path is not None:
            with suppress(OSError):
                changed = ca_path.stat().st_mtime_ns
        if (ca_path, changed) not in self._clients:
            self._clients[ca_path, changed] = HttpClient(self._guard, tls_context(ca_path), self._options)
        return self._clients[ca_path, changed]


def call_url(base: URL, call: ExternalCall) -> URL:
    """The URL of a call: the system's URL followed by the call's path."""
    url = URL(str(base).rstrip("/") + call.path)
    return url.with_query(list(call.query)) if call.query else url


def _headers(definition: External, secrets: Mapping[str, Secret], call: ExternalCall, call_id: str) -> dict[str, str]:
    """The definition's headers, overridden by the call's, then by secret and protocol headers."""
    given: list[tuple[str, str]] = [("User-Agent", "fieldpost"), ("Accept", "*/*"), *definition.headers.items()]
    if call.content_type is not None:
        given.append(("Content-Type", call.content_type))
    given += call.headers.items()
    given += ((name, secret.reveal()) for name, secret in secrets.items())
    # The excerpt of the response must be readable.
    given += (("Accept-Encoding", "identity"), ("Idempotency-Key", call_id))
    return dict({name.lower(): (name, value) for name, value in given}.values())


def _excerpt(definition: External, answer: HttpAnswer, scrub: Scrubber) -> str:
    """The status and the start of the response, on one line and without secrets."""
    try:
        phrase = f" {HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = ""
    text = f"{definition.name} answered {answer.status}{phrase}"
    if 300 <= answer.status <= 399 and (location := answer.headers.get("Location")):
        text += f", redirecting to {truncate(location, EXCERPT_BYTES_MAX)}, which calls do not follow"
    # Scrub before cutting, so that no part of a secret remains.
    words = _NOT_SHOWN.sub(" ", scrub(answer.body.decode("utf-8", "replace"))).strip()
    return f"{scrub(text)}: {truncate(words, EXCERPT_BYTES_MAX)}" if words else scrub(text)


_NOT_SHOWN = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
