"""The dialect http: method, URL and body with placeholders, and a table of the gateway's answers.

A placeholder such as `{number}` is replaced by its value, encoded for its place: percent-encoded in a URL and a form,
escaped in JSON and in XML. So no text can add a parameter or end a string.

    url      http://192.168.1.1/cgi-bin/sms_send?username={username}&password={password}&number={number}&text={text}
    answers  OK=delivered, ERROR=retry, TIMEOUT=retry, WRONG_NUMBER=failed
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from html import escape
from urllib.parse import quote, quote_plus

from yarl import URL

from fieldpost.central.adapters.answers import Verdict
from fieldpost.central.adapters.http import HttpRequest
from fieldpost.central.adapters.provider import USER_AGENT, ProviderRequests
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.core.sms.phone_number import NumberFormat, formatted

PLACEHOLDERS = ("number", "text", "sender", "id", "username", "password")
TEMPLATE_MAX = 4000
ANSWERS_MAX = 50
MEANINGS = {
    "delivered": Verdict.DELIVERED,
    "failed": Verdict.FAILED,
    "retry": Verdict.TRANSIENT,
    "held": Verdict.HELD,
    "pause": Verdict.CHANNEL_PAUSED,
}
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")


class GatewayRequests(ProviderRequests):
    """One request per number, by the channel's templates."""

    def __init__(self, envelope: Envelope, settings: Mapping[str, object], fitted: Fitted[str]) -> None:
        super().__init__(settings, fitted.truncated_to)
        password = settings.get("password")
        self._secret = password.reveal() if isinstance(password, Secret) else ""
        self._values = {
            "text": fitted.message,
            "sender": str(settings.get("sender", "")),
            "id": envelope.notification_id,
            "username": str(settings.get("username", "")),
            "password": self._secret,
        }
        self._format = NumberFormat(str(settings["number_format"]))

    def request(self, address: str) -> HttpRequest:
        settings = self.settings
        values = {**self._values, "number": formatted(address, self._format)}
        url, body = str(settings["url"]), str(settings["body"])
        headers = {"User-Agent": USER_AGENT}
        if body:
            headers["Content-Type"] = str(settings["content_type"])
        if self._secret and "{password}" not in url + body:
            pair = f"{values['username']}:{self._secret}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        return HttpRequest(
            method=str(settings["method"]),
            url=URL(_filled(url, values, lambda text: quote(text, safe="")), encoded=True),
            headers=headers,
            body=_filled(body, values, _encoder(str(settings["content_type"]))).encode(),
        )


def check_template(value: object, name: str) -> str:
    """A URL or body whose placeholders exist, or InvalidInput."""
    if type(value) is not str or len(value) > TEMPLATE_MAX or "\x00" in value:
        raise InvalidInput(
            "settings.invalid", f"{name} must be a string of up to {TEMPLATE_MAX} characters", field=name
        )
    for found in _PLACEHOLDER.findall(value):
        if found not in PLACEHOLDERS:
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise InvalidInput(
                "settings.placeholder",
                f"{name} has the unknown placeholder {{{found[:40]}}}; known: {known}",
                field=name,
            )
    return value


def check_answers(value: object, name: str) -> str:
    """The table of answers such as `OK=delivered, ERROR=retry`, or InvalidInput."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else None
    if parts is None or len(parts) > ANSWERS_MAX or len(str(value)) > TEMPLATE_MAX:
        raise InvalidInput("settings.invalid", f"{name} must have up to {ANSWERS_MAX} entries TEXT=MEANING", field=name)
    for part in parts:
        text, _, meaning = part.rpartition("=")
        if not text.strip() or meaning.strip() not in MEANINGS:
            raise InvalidInput(
                "settings.invalid",
                f"{name} must have entries TEXT=MEANING with a meaning of {', '.join(MEANINGS)}, got {part[:60]!r}",
                field=name,
            )
    return ", ".join(parts)


@lru_cache(maxsize=256)
def answers_of(table: str) -> tuple[tuple[str, Verdict], ...]:
    """The entries of a checked table, the longest text first."""
    entries = [part.rpartition("=") for part in table.split(",") if part.strip()]
    read = [(text.strip().lower(), MEANINGS[meaning.strip()]) for text, _, meaning in entries]
    return tuple(sorted(read, key=lambda entry: -len(entry[0])))


def _filled(template: str, values: Mapping[str, str], encode: Callable[[str], str]) -> str:
    return _PLACEHOLDER.sub(lambda found: encode(values[found[1]]), template)


def _encoder(content_type: str) -> Callable[[str], str]:
    if "json" in content_type:
        return lambda text: json.dumps(text)[1:-1]
    if "xml" in content_type:
        return escape
    return quote_plus if "form" in content_type else str
