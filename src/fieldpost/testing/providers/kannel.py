"""The sendsms interface of Kannel's smsbox. Like Kannel it accepts a text of any length, and truncates it silently."""

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from fieldpost.core.delivery.fitting import fit_text
from fieldpost.core.delivery.receipt import Callback
from fieldpost.core.sms.segments import segments_of
from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers.server import ProviderCopy, ProviderServer, id_in

PATH = "/cgi-bin/sendsms"
_NUMBER = re.compile(r"\+?[0-9]{1,20}", re.ASCII)


class FakeKannel(ProviderServer):
    """Kannel with one user. `messages_max` is its `max-messages`: the segments that it sends of one text."""

    def __init__(self, username: str, password: str, *, messages_max: int = 3, **options: Any) -> None:
        super().__init__(**options)
        self._login = (username, password)
        self._messages_max = messages_max
        self.is_network_away = False
        """Whether new messages are queued, because no network is attached."""
        self.receipt_urls: dict[str, str] = {}
        """The `dlr-url` of the last message to a number."""

    def receipt(self, number: str, status: int, said: str = "") -> Callback:
        """The request that Kannel makes to the `dlr-url` of a number. 1 is delivered, 2 failed, 4 buffered, 8 accepted
        by the network, 16 rejected."""
        url = self.receipt_urls[number].replace("%d", str(status)).replace("%A", quote(said, safe=""))
        query = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
        return Callback(method="GET", url=url, headers={}, query=query, body=b"")

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        if request.path != PATH:
            return HttpReaction(status=404, body=b"Unknown request.")
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if (query.get("username"), query.get("password")) != self._login:
            return HttpReaction(status=403, body=b"Authorization failed for sendsms")
        number, text = query.get("to", ""), query.get("text", "")
        if not text:
            return HttpReaction(status=400, body=b"Empty text and no default, rejected")
        if not _NUMBER.fullmatch(number):
            return HttpReaction(status=400, body=b"Garbage 'to' field, rejected.")
        if "dlr-url" in query:
            self.receipt_urls[number] = query["dlr-url"]
        shown = fit_text(text, segments_of, self._messages_max, mark="")
        said = b"3: Queued for later delivery" if self.is_network_away else b"0: Accepted for delivery"
        return ProviderCopy(number, id_in(shown), shown, query), HttpReaction(status=202, body=said)
