"""The email adapter: delivery over SMTP."""

import ssl
from collections.abc import Mapping
from functools import cached_property

from yarl import URL

from fieldpost.central.adapters.email.address import check_address
from fieldpost.central.adapters.email.attempt import Attempt
from fieldpost.central.adapters.email.conversation import AttemptDeadline, SmtpConversation
from fieldpost.central.adapters.email.description import FIELDS, GUIDE, PHASES
from fieldpost.central.adapters.email.opening import Opening
from fieldpost.central.adapters.email.options import MESSAGE_ID_DOMAIN
from fieldpost.central.adapters.email.pool import IDLE_S, Pool
from fieldpost.central.adapters.email.server_memory import ServerMemory
from fieldpost.central.adapters.email.settings import (
    DEADLINE_S,
    SECRETS,
    EmailSettings,
    check_settings,
    read_settings,
    warnings,
)
from fieldpost.central.adapters.email.smtp_transaction import SmtpTransaction
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Outcome, PermanentFailure
from fieldpost.core.errors import InvalidInput
from fieldpost.outbound.outbound import Outbound

MARGIN = 0.02
"""Fraction of the deadline kept in reserve: an attempt that ends before it is cancelled can report its phase."""
KNOWN_MAX = 1000
"""How many mappings of settings are remembered."""


class EmailAdapter:
    """Sends notifications as plain-text mail. Safe for concurrent attempts."""

    type = "email"
    secrets = SECRETS
    fields = FIELDS
    phases = PHASES
    guide = GUIDE

    def __init__(
        self,
        *,
        outbound: Outbound | None = None,
        message_id_domain: str = MESSAGE_ID_DOMAIN,
        tls_context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        deadline_s: float = DEADLINE_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """`tls_context` defaults to the machine's trusted authorities and never allows less than TLS 1.2.
        Idle connections are kept for `idle_s`."""
        self.deadline_s = deadline_s
        self._message_id_domain = message_id_domain
        self._given_tls_context = tls_context
        self._clock = clock or SystemClock()
        self._outbound = outbound or Outbound(clock=clock)
        self._is_outbound_ours = outbound is None
        self._pool = Pool(self._clock, idle_s)
        self._memory = ServerMemory(self._clock)
        self._known: dict[int, tuple[Mapping[str, object], EmailSettings]] = {}
        """Settings that were read, by identity."""

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        return check_settings(settings)

    def warnings(self, settings: Mapping[str, object]) -> list[str]:
        try:
            server = read_settings({**settings, "auth": "none"}).server
        except InvalidInput:
            return warnings(settings)
        return warnings(settings) + self._memory.describe(server)

    async def check_hosts(self, settings: Mapping[str, object]) -> None:
        if isinstance(host := settings.get("host"), str):
            await self._outbound.admin.check_hosts(host, "host")
        if isinstance(url := settings.get("oauth_token_url"), str):
            await self._outbound.admin_http.check_hosts(URL(url).raw_host or "", "oauth_token_url")

    def check_target(self, address: str) -> str:
        return check_address(address)

    def target_key(self, address: str) -> str:
        # RFC 5321 allows servers to distinguish `Ann@` from `ann@`, but none does.
        return address.casefold()

    async def deliver(self, envelope: Envelope) -> Outcome:
        try:
            settings = self._read(envelope.settings)
        except InvalidInput as error:
            return PermanentFailure(f"the channel's settings are invalid: {error.message}", phase="settings")
        attempt = Attempt(envelope, settings, self._memory.of(settings.server), self._message_id_domain)
        if (refusal := attempt.refusal) is not None:
            return refusal
        deadline = AttemptDeadline(self._clock, self._clock.monotonic() + self.deadline_s * (1 - MARGIN))
        opening = Opening(settings, self._tls_context, self._outbound, deadline, envelope.transcript)
        # A transcript must show the whole conversation, from the banner on.
        is_fresh = envelope.transcript is not None
        while True:
            conversation = await self._pool.take(settings, deadline, opening, is_fresh=is_fresh)
            if isinstance(conversation, SmtpConversation):
                outcome = await self._run(attempt, conversation, settings, deadline)
                if outcome is not None:
                    return outcome
                is_fresh = True
            elif not opening.is_worth_another:
                return attempt.held(conversation)

    def _read(self, stored: Mapping[str, object]) -> EmailSettings:
        """The settings as values. The dispatcher passes the same mapping for a list until its channel changes."""
        known = self._known.get(id(stored))
        if known is not None and known[0] is stored:
            return known[1]
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        settings = read_settings(stored)
        self._known[id(stored)] = stored, settings
        return settings

    async def close(self) -> None:
        await self._pool.close()
        if self._is_outbound_ours:
            await self._outbound.close()

    async def _run(
        self, attempt: Attempt, conversation: SmtpConversation, settings: EmailSettings, deadline: AttemptDeadline
    ) -> Outcome | None:
        may_pipeline = settings.pipelining == "auto" and attempt.may_pipeline
        transaction = SmtpTransaction(
            conversation, settings, deadline, self._pool.hand_over, attempt.traits, may_pipeline=may_pipeline
        )
        try:
            outcome = await attempt.run(transaction)
        except BaseException:
            # Cancelled, or the claim was lost: the final dot must not be sent any more.
            transaction.abort()
            raise
        if outcome is None or transaction.is_over:
            transaction.abort()
        elif not transaction.is_handed_over:
            self._leave(transaction, conversation)
        return outcome

    def _leave(self, transaction: SmtpTransaction, conversation: SmtpConversation) -> None:
        if conversation.transcript is not None:
            self._pool.dismiss(conversation)
        elif transaction.is_settled:
            self._pool.give_back(conversation)
        else:
            # Replies are still outstanding, but the outcome does not depend on them.
            self._pool.run_in_background(self._drain(transaction, conversation))

    async def _drain(self, transaction: SmtpTransaction, conversation: SmtpConversation) -> None:
        if await transaction.leave():
            self._pool.give_back(conversation)
        else:
            conversation.hang_up()

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        context = self._given_tls_context or ssl.create_default_context()
        # Python's default is all that OpenSSL supports, unless it was built otherwise.
        context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
        return context
