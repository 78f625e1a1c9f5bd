"""The webhook adapter: one signed POST to the receiver of a subscription, or to each target of a list."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from yarl import URL

from fieldpost import __version__
from fieldpost.central.adapters.http import HttpAttempt, HttpRequest, occurring_phases
from fieldpost.central.adapters.webhook.classify import classify, held
from fieldpost.central.adapters.webhook.description import FIELDS, GUIDE, PHASES
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.adapters.webhook.setting_checks import WebhookAuth
from fieldpost.central.adapters.webhook.settings import (
    SECRETS,
    WebhookSettings,
    check_channel_settings,
    check_receiver_url,
    read_settings,
)
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.delivery.adapter import AttemptPhase, Envelope
from fieldpost.core.delivery.outcome import (
    Delivered,
    Evidence,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
    fold,
    scrubbed,
)
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.body import WebhookFormat, event_body, notification_body
from fieldpost.core.events.event import RecordedEvent
from fieldpost.core.events.signature import SIGNATURE_HEADER, signed_headers
from fieldpost.core.events.subscription import WEBHOOK_TYPE
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.secret import Secret, scrubber_of
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.tokens import NoToken, OAuthTokens

DEADLINE_S = 30.0
"""The time limit of an attempt with all its tries."""
MARGIN = 0.02
"""Fraction of the deadline kept in reserve, so that an attempt can report its phase before it is cancelled."""
TARGETS_AT_ONCE = 8
SETTINGS_KEPT = 10_000
BODIES_KEPT = 32
"""Of events that are being sent to many receivers; a body has at most 256 KiB."""
USER_AGENT = f"Fieldpost/{__version__}"


class WebhookAdapter:
    """Sends events and notifications as webhooks. Safe for concurrent attempts."""

    type = WEBHOOK_TYPE
    secrets = SECRETS
    fields = FIELDS
    phases: Sequence[AttemptPhase] = PHASES
    guide = GUIDE

    def __init__(
        self,
        *,
        outbound: Outbound | None = None,
        webhooks: WebhookOptions | None = None,
        clock: Clock | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.deadline_s = deadline_s
        self._clock = clock or SystemClock()
        self._outbound = outbound or Outbound(clock=clock)
        self._is_outbound_ours = outbound is None
        self._options = webhooks or WebhookOptions()
        self.phases = occurring_phases(PHASES, self._outbound.options)
        self._read: dict[int, tuple[Mapping[str, object], WebhookSettings]] = {}
        self._bodies: dict[tuple[int, WebhookFormat], tuple[RecordedEvent, bytes]] = {}

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        return check_channel_settings(settings)

    async def check_hosts(self, settings: Mapping[str, object]) -> None:
        """The host of a subscription's URL and token URL, or of a channel's token URL."""
        client = self._outbound.strict_http if "url" in settings else self._outbound.admin_http
        for name in ("url", "token_url"):
            if isinstance(url := settings.get(name), str):
                await client.check_hosts(URL(url).raw_host or "", name)

    def check_target(self, address: str) -> str:
        """The URL of a receiver; the address guard checks its host at each attempt."""
        return check_receiver_url(address, "target", is_plain_allowed=self._options.allow_plain)

    def target_key(self, address: str) -> str:
        return address

    async def deliver(self, envelope: Envelope) -> Outcome:
        try:
            settings = self._read_settings(envelope.settings)
        except InvalidInput as error:
            return PermanentFailure(
                f"the settings are invalid: {error.message}", phase="settings", evidence=Evidence.NONE
            )
        ends_at = self._clock.monotonic() + self.deadline_s * (1 - MARGIN)
        if settings.url is not None:
            return await self._post(envelope, settings, settings.url, ends_at)
        return await self._post_all(envelope, settings, ends_at)

    def _read_settings(self, given: Mapping[str, object]) -> WebhookSettings:
        """The settings of a path, which are one object until they change: parsing them costs more than signing."""
        kept = self._read.get(id(given))
        if kept is not None and kept[0] is given:
            return kept[1]
        settings = read_settings(given)
        if len(self._read) >= SETTINGS_KEPT:
            self._read.clear()
        self._read[id(given)] = given, settings
        return settings

    def _event_body(self, format: WebhookFormat, recorded: RecordedEvent) -> bytes:
        """The body of an event, which is the same for all its receivers."""
        kept = self._bodies.get((id(recorded), format))
        if kept is not None and kept[0] is recorded:
            return kept[1]
        body = event_body(format, recorded.event, recorded.created_at)
        if len(self._bodies) >= BODIES_KEPT:
            self._bodies.clear()
        self._bodies[id(recorded), format] = recorded, body
        return body

    async def close(self) -> None:
        if self._is_outbound_ours:
            await self._outbound.close()

    async def _post_all(self, envelope: Envelope, settings: WebhookSettings, ends_at: float) -> Outcome:
        """To each target of a list, a few at a time."""
        slots = asyncio.Semaphore(TARGETS_AT_ONCE)

        async def post(url: str) -> Outcome:
            async with slots:
                return await self._post(envelope, settings, url, ends_at)

        outcomes = await asyncio.gather(*map(post, envelope.targets))
        return _fold(dict(zip(envelope.targets, outcomes, strict=True)))

    async def _post(self, envelope: Envelope, settings: WebhookSettings, url: str, ends_at: float) -> Outcome:
        try:
            token = await self._token(settings, ends_at)
        except (NoToken, Blocked) as error:
            return held(str(error), "token")
        except TimeoutError:
            return held(f"no token from {settings.token_url} within {self.deadline_s:g} s", "token")
        request = self._request(envelope, settings, _parsed(url), token)
        # A receiver may repeat the access token, which no setting contains.
        scrub, transcript = scrubber_of(token), envelope.transcript
        known = scrubber_of(token, settings.secret, settings.former_secret, settings.auth_secret)
        attempt = HttpAttempt(
            self._outbound.strict_http,
            self._clock,
            ends_at,
            settings.tries,
            settings.retry_codes,
            envelope.gate,
            None if transcript is None else lambda line: transcript(scrub(line)),
        )
        await attempt.run(request)
        outcome = classify(attempt, attempt.exchange(request, known), settings.give_up_codes)
        if token is not None and outcome.reply == "401" and settings.credential is not None:
            self._tokens(settings).refused(settings.credential, token)
        return scrubbed(outcome, scrub) if scrub else outcome

    async def _token(self, settings: WebhookSettings, ends_at: float) -> Secret | None:
        if (credential := settings.credential) is None:
            return None
        async with asyncio.timeout(max(ends_at - self._clock.monotonic(), 0.001)):
            return await self._tokens(settings).get(credential)

    def _tokens(self, settings: WebhookSettings) -> OAuthTokens:
        # The token URL of a channel is an administrator's, that of a subscription may be a subscriber's.
        return self._outbound.strict_tokens if settings.url is not None else self._outbound.admin_tokens

    def _request(self, envelope: Envelope, settings: WebhookSettings, url: URL, token: Secret | None) -> HttpRequest:
        format = settings.format if envelope.event is not None else WebhookFormat.STANDARD
        if envelope.event is not None:
            body = self._event_body(format, envelope.event)
            correlation_id = envelope.event.event.correlation_id
        else:
            body = notification_body(envelope.subject, envelope.body, envelope.provenance, envelope.dated)
            correlation_id = None
        now = self._clock.now()
        credentials = _auth_headers(settings, token)
        headers = {
            "User-Agent": USER_AGENT,
            **settings.headers,
            "Content-Type": format.content_type,
            "Accept-Encoding": "identity",
            "Idempotency-Key": envelope.notification_id,
            "X-Correlation-ID": _ascii(correlation_id or envelope.notification_id),
            **signed_headers(settings.signing_secrets(now), envelope.notification_id, now, body),
            **credentials,
        }
        return HttpRequest(url=url, headers=headers, body=body, hidden=(SIGNATURE_HEADER, *credentials))


@lru_cache(maxsize=4096)
def _parsed(url: str) -> URL:
    return URL(url)


def _auth_headers(settings: WebhookSettings, token: Secret | None) -> dict[str, str]:
    secret = settings.auth_secret.reveal() if settings.auth_secret is not None else ""
    match settings.auth:
        case WebhookAuth.NONE:
            return {}
        case WebhookAuth.HEADER:
            return {settings.auth_header or "": secret}
        case WebhookAuth.BASIC:
            pair = base64.b64encode(f"{settings.username}:{secret}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        case WebhookAuth.OAUTH2:
            return {"Authorization": f"Bearer {token.reveal() if token else ''}"}


def _ascii(text: str) -> str:
    """A text as the value of a header: other characters are percent-encoded."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isascii() and c.isprintable() else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


def _fold(outcomes: Mapping[str, Outcome]) -> Outcome:
    """One outcome for all targets of a list. The path fails if none of its targets worked."""
    exchanges = tuple(exchange for outcome in outcomes.values() for exchange in outcome.exchanges)
    answered = [outcome for outcome in outcomes.values() if not isinstance(outcome, Held)]
    if not answered:
        return replace(next(iter(outcomes.values())), exchanges=exchanges)
    folded = fold(tuple(_target(address, outcome) for address, outcome in outcomes.items()))
    works = any(outcome.evidence is Evidence.WORKS for outcome in answered)
    evidence = Evidence.WORKS if works else Evidence.FAILS
    if isinstance(folded, TransientFailure):
        waits = [o.retry_after for o in answered if isinstance(o, TransientFailure) and o.retry_after is not None]
        folded = replace(folded, retry_after=max(waits, default=None), phase=answered[0].phase)
        if all(isinstance(outcome, Uncertain) for outcome in answered):
            folded = Uncertain(folded.error, folded.targets, phase=answered[0].phase)
    return replace(folded, evidence=evidence, exchanges=exchanges)


def _target(address: str, outcome: Outcome) -> Target:
    match outcome:
        case Delivered():
            return Target(address, TargetStatus.DELIVERED)
        case PermanentFailure():
            return Target(address, TargetStatus.FAILED, outcome.error)
        case _:
            return Target(address, TargetStatus.DUE, outcome.error)
