"""Twilio's Messages resource, with the states of its messages and signed status callbacks."""

import hmac
from base64 import b64decode, b64encode
from datetime import timedelta
from hashlib import sha1
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fieldpost.core.delivery.receipt import Callback
from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.providers.server import ProviderCopy, ProviderServer, RequestLimit, id_in, json_reaction

BODY_MAX = 1600


class FakeTwilio(ProviderServer):
    """One account. Messages stay `queued` until a test sets another state by `settle`."""

    def __init__(self, account: str, token: str, **options: Any) -> None:
        super().__init__(**options)
        self.account = account
        self.token = token
        self.numbers: dict[str, int] = {}
        """The error code of a number, such as 21610."""
        self.messages: dict[str, dict[str, Any]] = {}
        self.new_status = "queued"
        """The state that new messages have when they are asked for."""
        self.new_error_code: int | None = None
        self._of_account = RequestLimit(100, timedelta(seconds=1))

    def settle(self, sid: str, status: str, error_code: int | None = None) -> None:
        """Set the state of a message."""
        self.messages[sid] |= {"status": status, "error_code": error_code}

    def callback(self, sid: str, url: str) -> Callback:
        """The status callback for a message in its present state, signed as Twilio does."""
        message = self.messages[sid]
        form = {"MessageSid": sid, "MessageStatus": message["status"], "AccountSid": self.account}
        if message["error_code"] is not None:
            form["ErrorCode"] = str(message["error_code"])
        signed = url + "".join(name + form[name] for name in sorted(form))
        signature = b64encode(hmac.new(self.token.encode(), signed.encode(), sha1).digest()).decode()
        return Callback(
            method="POST",
            url=url,
            headers={"x-twilio-signature": signature},
            query={},
            body=urlencode(form).encode(),
        )

    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        kind, _, pair = request.headers.get("authorization", "").partition(" ")
        if kind != "Basic" or b64decode(pair).decode() != f"{self.account}:{self.token}":
            return twilio_error(401, 20003, "Authenticate")
        base = f"/2010-04-01/Accounts/{self.account}/Messages"
        if request.method == "GET":
            message = self.messages.get(request.path.removeprefix(f"{base}/").removesuffix(".json"))
            return json_reaction(200, message) if message else twilio_error(404, 20404, "The resource was not found")
        if request.path != f"{base}.json":
            return twilio_error(404, 20404, "The requested resource was not found")
        return self._send(dict(parse_qsl(request.body.decode())))

    def _send(self, form: dict[str, str]) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        to, body = form.get("To", ""), form.get("Body", "")
        if to in self.numbers:
            return twilio_error(400, self.numbers[to], "the number cannot be used")
        if not to.startswith("+"):
            return twilio_error(400, 21211, f"Invalid 'To' Phone Number: {to}")
        if not body or len(body) > BODY_MAX:
            return twilio_error(400, 21617, "The concatenated message body exceeds the 1600 character limit")
        if "From" not in form and "MessagingServiceSid" not in form:
            return twilio_error(400, 21603, "A 'From' phone number is required.")
        if self.wait_s(self._of_account):
            return twilio_error(429, 20429, "Too Many Requests")
        sid = f"SM{len(self.messages):032x}"
        self.messages[sid] = {
            "sid": sid,
            "account_sid": self.account,
            "to": to,
            "from": form.get("From"),
            "body": body,
            "status": "queued",
            "error_code": None,
            "error_message": None,
        }
        created = json_reaction(201, self.messages[sid])
        self.settle(sid, self.new_status, self.new_error_code)
        return ProviderCopy(to, id_in(body), body, form), created


def twilio_error(status: int, code: int, message: str) -> HttpReaction:
    """An error as Twilio words it."""
    more = f"https://www.twilio.com/docs/errors/{code}"
    return json_reaction(status, {"code": code, "message": message, "more_info": more, "status": status})
