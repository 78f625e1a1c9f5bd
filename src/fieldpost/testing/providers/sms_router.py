"""A GSM router with an HTTP API of one request per text message: it always answers 200, with the result as text."""

from typing import Any
from urllib.parse import parse_qsl

from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers.server import ProviderCopy, ProviderServer, id_in

PATH = "/cgi-bin/sms_send"


class FakeSmsRouter(ProviderServer):
    """The router, with one user. Numbers begin with 00."""

    def __init__(self, username: str, password: str, **options: Any) -> None:
        super().__init__(**options)
        self._login = (username, password)

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        if request.path != PATH:
            return HttpReaction(status=404)
        query = dict(parse_qsl(request.query))
        if (query.get("username"), query.get("password")) != self._login:
            return HttpReaction(status=403, body=b"FORBIDDEN")
        number, text = query.get("number", ""), query.get("text", "")
        if not number.startswith("00") or not number.isdigit():
            return HttpReaction(body=b"WRONG_NUMBER\n")
        return ProviderCopy(f"+{number[2:]}", id_in(text), text, query), HttpReaction(body=b"OK\n")
