"""Opening a connection: OAuth token if needed, greeting, TLS and login."""

import asyncio
import math
import ssl
from collections.abc import Callable

from fieldpost.central.adapters.email.classify import ReplyVerdict, SmtpReply, classify
from fieldpost.central.adapters.email.conversation import SmtpConversation
from fieldpost.central.adapters.email.deadline import AttemptDeadline
from fieldpost.central.adapters.email.login import log_in
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.core.outcome import Held
from fieldpost.core.secret import Scrubber, Secret
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.tokens import NoToken


class Opening:
    """Opens connections for one attempt. Every failure here is one of the channel and holds."""

    def __init__(
        self,
        settings: EmailSettings,
        tls_context: ssl.SSLContext,
        outbound: Outbound,
        deadline: AttemptDeadline,
        transcript: Callable[[str], None] | None,
    ) -> None:
        self.is_worth_another = False
        """The token was rejected; a new one may work."""
        self._settings = settings
        self._tls_context = tls_context
        self._outbound = outbound
        self._deadline = deadline
        self._transcript = transcript
        self._has_renewed = False

    def make(self) -> SmtpConversation:
        """A conversation without a connection."""
        made = SmtpConversation(self._settings, self._tls_context, self._outbound.admin)
        made.transcript = self._transcript
        return made

    async def open(self, conversation: SmtpConversation) -> Held | None:
        """Connect and log in; returns None when the conversation is ready for MAIL."""
        self.is_worth_another = False
        try:
            token = await self._token()
        except NoToken as error:
            return Held(str(error), phase="token")
        secrets = (self._settings.password, self._settings.oauth_client_secret, token)
        conversation.scrub = Scrubber(secret for secret in secrets if secret is not None)
        reply = await conversation.greet(self._deadline)
        if not _is_accepted(conversation, reply):
            return _held(conversation, reply)
        if self._settings.auth != "none":
            reply = await log_in(conversation, self._settings, token, self._deadline)
            if not _is_accepted(conversation, reply):
                self._consider_token(token, reply)
                return _held(conversation, reply)
        return None

    async def _token(self) -> Secret | None:
        credential = self._settings.credential
        if credential is None:
            return None
        try:
            async with asyncio.timeout(self._deadline.at_most(math.inf)):
                return await self._outbound.admin_tokens.get(credential)
        except TimeoutError:
            raise NoToken(f"no token from {credential.url} in time") from None

    def _consider_token(self, token: Secret | None, reply: SmtpReply) -> None:
        """A token that the mail server rejects may have been revoked: fetch another, once."""
        credential = self._settings.credential
        if credential is not None and token is not None and reply.code == 535:
            self._outbound.admin_tokens.refused(credential, token)
            self.is_worth_another = not self._has_renewed
            self._has_renewed = True


def _is_accepted(conversation: SmtpConversation, reply: SmtpReply) -> bool:
    return classify(conversation.phase, reply) is ReplyVerdict.ACCEPTED


def _held(conversation: SmtpConversation, reply: SmtpReply) -> Held:
    phase = conversation.phase
    return Held(f"mail server at {phase}: {reply.line}", reply.line, phase.value)
