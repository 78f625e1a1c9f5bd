"""Opening a connection: OAuth token if needed, greeting, TLS and login (AUTH, only over TLS or to this machine)."""

import asyncio
import base64
import math
import ssl
from collections.abc import Callable
from ipaddress import ip_address

from fieldpost.central.adapters.email.classify import SmtpPhase, SmtpReply
from fieldpost.central.adapters.email.conversation import AttemptDeadline, SmtpConversation
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.core.delivery.outcome import Held
from fieldpost.core.secret import HIDDEN, Scrubber, Secret
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
        if not conversation.may_go_on(reply):
            return _held(conversation, reply)
        if self._settings.auth != "none":
            reply = await _log_in(conversation, self._settings, token, self._deadline)
            if not conversation.may_go_on(reply):
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


def _held(conversation: SmtpConversation, reply: SmtpReply) -> Held:
    phase = conversation.phase
    return Held(f"mail server at {phase}: {reply.line}", reply.line, phase.value)


async def _log_in(
    conversation: SmtpConversation, settings: EmailSettings, token: Secret | None, deadline: AttemptDeadline
) -> SmtpReply:
    """Authenticate; returns the last reply, 235 on success."""
    conversation.phase = SmtpPhase.AUTH
    if not conversation.is_tls and not _is_on_this_machine(conversation.peer):
        # The settings allow this only for this machine, but a host name may resolve to another.
        return SmtpReply(0, f"credentials are not sent without TLS to {conversation.peer}, which is another machine")
    offered = conversation.extensions.get("auth", "").upper().split()
    wanted = ("XOAUTH2",) if settings.auth == "oauth2" else ("PLAIN", "LOGIN")
    mechanism = next((name for name in wanted if name in offered), None)
    if mechanism is None:
        offer = ", ".join(offered) or "no AUTH"
        return SmtpReply(0, f"the channel requires AUTH {' or '.join(wanted)}, but the server offers {offer}")
    user = settings.username or ""
    secret = token if settings.auth == "oauth2" else settings.password
    assert secret is not None, "settings without a secret are not valid"
    match mechanism:
        case "XOAUTH2":
            first = f"user={user}\x01auth=Bearer {secret.reveal()}\x01\x01"
            reply = await _command(conversation, f"AUTH XOAUTH2 {_encoded(first)}", f"AUTH XOAUTH2 {HIDDEN}", deadline)
            if reply.code == 334:
                # The server states the reason in a challenge and replies 535 to an empty line.
                reply = await _command(conversation, "", "", deadline)
        case "PLAIN":
            first = f"\0{user}\0{secret.reveal()}"
            reply = await _command(conversation, f"AUTH PLAIN {_encoded(first)}", f"AUTH PLAIN {HIDDEN}", deadline)
        case _:
            reply = await _command(conversation, "AUTH LOGIN", "AUTH LOGIN", deadline)
            for answer in (user, secret.reveal()):
                if reply.code == 334:
                    reply = await _command(conversation, _encoded(answer), HIDDEN, deadline)
    return reply


async def _command(conversation: SmtpConversation, line: str, shown: str, deadline: AttemptDeadline) -> SmtpReply:
    return await conversation.command(SmtpPhase.AUTH, line.encode("ascii"), deadline, shown=shown)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")


def _is_on_this_machine(peer: str) -> bool:
    try:
        return ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False
