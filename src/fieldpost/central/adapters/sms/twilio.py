"""The dialect twilio: the Messages resource of Twilio and compatible services."""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha1
from urllib.parse import parse_qsl, quote, urlencode

from yarl import URL

from fieldpost.central.adapters.answers import object_in
from fieldpost.central.adapters.http import HttpRequest
from fieldpost.central.adapters.provider import USER_AGENT, ProviderRequests, parsed_url
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted
from fieldpost.core.delivery.receipt import Callback, Receipt, ReceiptStatus
from fieldpost.core.errors import Denied, InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import HttpAnswer

SIGNATURE = "x-twilio-signature"
UNREACHABLE = frozenset({30003, 30008})
"""Errors after which another attempt may succeed: handset unreachable, unknown error."""
_STATUSES = {
    "accepted": ReceiptStatus.IN_TRANSIT,
    "scheduled": ReceiptStatus.IN_TRANSIT,
    "queued": ReceiptStatus.IN_TRANSIT,
    "sending": ReceiptStatus.IN_TRANSIT,
    "sent": ReceiptStatus.IN_TRANSIT,
    "delivered": ReceiptStatus.DELIVERED,
    "read": ReceiptStatus.DELIVERED,
    "undelivered": ReceiptStatus.FAILED,
    "failed": ReceiptStatus.FAILED,
    "canceled": ReceiptStatus.FAILED,
}


class TwilioRequests(ProviderRequests):
    """One message per number."""

    def __init__(self, envelope: Envelope, settings: Mapping[str, object], fitted: Fitted[str]) -> None:
        super().__init__(settings, fitted.truncated_to)
        self._receipt_urls = envelope.receipt_urls
        sender = str(settings["sender"])
        self._form = {"MessagingServiceSid" if sender.startswith("MG") else "From": sender, "Body": fitted.message}
        self._url = messages_url(settings, "Messages.json")
        self._headers = {**twilio_headers(settings), "Content-Type": "application/x-www-form-urlencoded"}

    def request(self, address: str) -> HttpRequest:
        form = {**self._form, "To": address}
        if (receipt_url := self._receipt_urls.get(address)) is not None:
            form["StatusCallback"] = receipt_url
        return HttpRequest(url=self._url, headers=self._headers, body=urlencode(form).encode())


def messages_url(settings: Mapping[str, object], path: str) -> URL:
    return parsed_url(f"{settings['url']}/2010-04-01/Accounts/{settings['username']}/{path}")


def twilio_headers(settings: Mapping[str, object]) -> dict[str, str]:
    token = settings["password"]
    assert isinstance(token, Secret)
    pair = b64encode(f"{settings['username']}:{token.reveal()}".encode()).decode()
    return {"User-Agent": USER_AGENT, "Authorization": f"Basic {pair}"}


def status_request(settings: Mapping[str, object], provider_id: str) -> HttpRequest:
    """The question for the state of a message."""
    url = messages_url(settings, f"Messages/{quote(provider_id, safe='')}.json")
    return HttpRequest(method="GET", url=url, headers=twilio_headers(settings), body=b"")


def read_status(answer: HttpAnswer, provider_id: str) -> Receipt | None:
    """The receipt in the answer to that question; None if it says nothing about the message."""
    said = object_in(answer)
    if answer.status != 200 or said.get("status") not in _STATUSES:
        return None
    return _receipt(provider_id, str(said["status"]), said.get("error_code"))


def read_twilio(settings: Mapping[str, object], callback: Callback) -> Receipt:
    """The receipt in a status callback with a valid signature. Raises Denied, InvalidInput."""
    try:
        form = dict(parse_qsl(callback.body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise InvalidInput("receipt.form", "the receipt must be a form", field="body") from None
    token = settings["password"]
    assert isinstance(token, Secret)
    signed = callback.url + "".join(name + form[name] for name in sorted(form))
    expected = b64encode(hmac.new(token.reveal().encode(), signed.encode(), sha1).digest()).decode()
    if not hmac.compare_digest(expected.encode(), callback.headers.get(SIGNATURE, "").encode("utf-8", "replace")):
        raise Denied("receipt.signature", "the signature of the receipt is not valid")
    status = form.get("MessageStatus", "")
    if status not in _STATUSES:
        raise InvalidInput("receipt.status", "MessageStatus must be a status of a message", field="MessageStatus")
    return _receipt(form.get("MessageSid", ""), status, form.get("ErrorCode"))


def _receipt(provider_id: str, status: str, code: object) -> Receipt:
    verdict = _STATUSES[status]
    if verdict is not ReceiptStatus.FAILED:
        return Receipt(provider_id=provider_id, status=verdict)
    number = int(str(code)) if str(code).isascii() and str(code).isdigit() else None
    error = status if number is None else f"{status}: error {number}"
    return Receipt(provider_id=provider_id, status=ReceiptStatus.DUE if number in UNREACHABLE else verdict, error=error)
