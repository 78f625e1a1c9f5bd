"""SMTP AUTH, only over TLS or to this machine."""

import base64
from collections.abc import Sequence
from ipaddress import ip_address

from fieldpost.central.adapters.email.classify import SmtpPhase, SmtpReply
from fieldpost.central.adapters.email.conversation import SmtpConversation
from fieldpost.central.adapters.email.deadline import AttemptDeadline
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.core.secret import HIDDEN, Secret


async def log_in(
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
        return SmtpReply(0, _not_offered(wanted, offered))
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


def _not_offered(wanted: Sequence[str], offered: Sequence[str]) -> str:
    offer = ", ".join(offered) or "no AUTH"
    return f"the channel requires AUTH {' or '.join(wanted)}, but the server offers {offer}"
