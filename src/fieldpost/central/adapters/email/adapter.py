"""Email as a way out: an adapter over SMTP. Each attempt has a connection of its own."""

import asyncio
import ssl
from collections.abc import Mapping
from functools import cached_property

from fieldpost.central.adapters.email.address import check_address
from fieldpost.central.adapters.email.attempt import Attempt
from fieldpost.central.adapters.email.conversation import Conversation
from fieldpost.central.adapters.email.settings import DEADLINE_S, check_settings, read_settings
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.adapter import Envelope
from fieldpost.core.errors import InvalidInput
from fieldpost.core.outcome import Outcome, PermanentFailure

MARGIN = 0.02
"""The part of the deadline left unused: an attempt that ends by itself knows its phase, a cancelled one does not."""


class EmailAdapter:
    """Sends notifications as plain-text mail. Safe for any number of attempts at a time."""

    type = "email"
    secrets = frozenset({"password", "oauth_client_secret"})

    def __init__(
        self,
        *,
        tls_context: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`tls_context` says whom to trust; without one, those whom the machine trusts."""
        self.deadline_s = deadline_s
        self._given_tls_context = tls_context
        self._clock = clock or SystemClock()
        self._farewells: set[asyncio.Task[None]] = set()

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        return check_settings(settings)

    def check_target(self, address: str) -> str:
        return check_address(address)

    def target_key(self, address: str) -> str:
        # RFC 5321 lets a server tell `Ann@` from `ann@`; none does, and Ann does not want two mails.
        return address.casefold()

    async def deliver(self, envelope: Envelope) -> Outcome:
        try:
            settings = read_settings(envelope.settings)
        except InvalidInput as error:
            return PermanentFailure(f"the channel's settings are not valid: {error.message}", phase="settings")
        until = self._clock.monotonic() + self.deadline_s * (1 - MARGIN)
        conversation = Conversation(settings, self._tls_context, self._clock, until)
        try:
            outcome = await Attempt(envelope, settings).run(conversation)
        except BaseException:
            # Cancelled, or the claim is lost: the server must not get a dot that it does not have yet.
            conversation.abort()
            raise
        self._take_leave(conversation)
        return outcome

    async def close(self) -> None:
        await asyncio.gather(*self._farewells, return_exceptions=True)

    def _take_leave(self, conversation: Conversation) -> None:
        """QUIT in a task of its own: whether a server is polite at the end must neither delay nor change an outcome."""
        if conversation.is_over:
            conversation.abort()
            return
        task = asyncio.get_running_loop().create_task(conversation.quit(), name="smtp quit")
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        if self._given_tls_context is not None:
            return self._given_tls_context
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
