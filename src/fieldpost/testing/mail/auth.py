"""The AUTH dialogues: PLAIN, LOGIN and XOAUTH2."""

import base64
import binascii
import inspect
import json
from collections.abc import Awaitable, Callable

from fieldpost.testing.mail.offer import AuthCheck, Credentials
from fieldpost.testing.mail.script import ScriptedReply

Challenge = Callable[[str], Awaitable[str]]
"""Sends a 334 with this challenge and returns the client's response."""

_WRONG = ScriptedReply(535, "5.7.8 Authentication credentials invalid")
_MALFORMED = ScriptedReply(501, "5.5.2 Cannot decode the response")
_CANCELLED = ScriptedReply(501, "5.7.0 Authentication cancelled")


async def authenticate(
    mechanism: str, initial: str | None, ask: Challenge, check: AuthCheck
) -> tuple[ScriptedReply, str | None]:
    """Run the dialogue; returns the last reply and the authenticated user."""
    try:
        credentials = await _credentials(mechanism, initial, ask)
    except _Cancelled:
        return _CANCELLED, None
    except (binascii.Error, ValueError):
        return _MALFORMED, None
    verdict = check(credentials)
    if inspect.isawaitable(verdict):
        verdict = await verdict
    if verdict:
        return ScriptedReply(235, "2.7.0 Authentication successful"), credentials.user
    if mechanism == "XOAUTH2":
        # The reason is sent as a challenge; the client answers with an empty line and then gets the 535.
        reason = json.dumps({"status": "401", "schemes": "bearer", "scope": "https://mail.example/"})
        await ask(_encode(reason))
    return _WRONG, None


async def _credentials(mechanism: str, initial: str | None, ask: Challenge) -> Credentials:
    match mechanism:
        case "PLAIN":
            _, user, secret = _decode(initial if initial is not None else await ask("")).split("\0")
        case "LOGIN":
            user = _decode(initial if initial is not None else await ask(_encode("Username:")))
            secret = _decode(await ask(_encode("Password:")))
        case "XOAUTH2":
            said = _decode(initial if initial is not None else await ask(""))
            fields = dict(part.split("=", 1) for part in said.split("\x01") if part)
            user, secret = fields.get("user", ""), fields.get("auth", "").removeprefix("Bearer ")
        case _:
            raise ValueError(mechanism)
    return Credentials(mechanism, user, secret)


class _Cancelled(Exception):
    pass


def _decode(text: str) -> str:
    if text == "*":
        raise _Cancelled
    return "" if text == "=" else base64.b64decode(text, validate=True).decode()


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
