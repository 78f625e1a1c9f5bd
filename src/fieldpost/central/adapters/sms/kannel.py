"""The dialect kannel: the sendsms interface of Kannel's smsbox, which GSM modems and SMPP lines are attached to.

Kannel accepts texts of any length and silently cuts them at `max-messages`, so the text is truncated before. It
cannot be asked about a message: receipts come by the `dlr-url` alone.
"""

from collections.abc import Mapping
from urllib.parse import urlencode

from yarl import URL

from fieldpost.central.adapters.http import HttpRequest
from fieldpost.central.adapters.provider import USER_AGENT, ProviderRequests, parsed_url
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.fitting import Fitted
from fieldpost.core.delivery.receipt import Callback, Receipt, ReceiptStatus
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.core.sms.segments import SmsEncoding, encoding_of

ALL_RECEIPTS = "31"
"""The mask of the receipts that are wanted: delivered, failed, buffered, submitted and rejected."""
_STATUSES = {
    "1": (ReceiptStatus.DELIVERED, None),
    "2": (ReceiptStatus.FAILED, "the network could not deliver it"),
    "4": (ReceiptStatus.IN_TRANSIT, None),
    "8": (ReceiptStatus.IN_TRANSIT, None),
    "16": (ReceiptStatus.FAILED, "the network rejected it"),
}


class KannelRequests(ProviderRequests):
    """One request per number."""

    def __init__(self, envelope: Envelope, settings: Mapping[str, object], fitted: Fitted[str]) -> None:
        super().__init__(settings, fitted.truncated_to)
        password = settings["password"]
        assert isinstance(password, Secret)
        self._receipt_urls = envelope.receipt_urls
        self._query = {
            "username": str(settings["username"]),
            "password": password.reveal(),
            "charset": "UTF-8",
            "coding": "0" if encoding_of(fitted.message) is SmsEncoding.GSM7 else "2",
            "text": fitted.message,
        }
        if "sender" in settings:
            self._query["from"] = str(settings["sender"])

    def request(self, address: str) -> HttpRequest:
        query = {**self._query, "to": address}
        if (receipt_url := self._receipt_urls.get(address)) is not None:
            # Kannel replaces %d by the status and %A by the text of the network.
            query |= {"dlr-mask": ALL_RECEIPTS, "dlr-url": f"{receipt_url}?status=%d&answer=%A"}
        # Not encoded by yarl, which leaves some characters as they are: the password must look as it is searched for.
        url = URL(f"{parsed_url(str(self.settings['url'])).with_query(None)}?{urlencode(query)}", encoded=True)
        return HttpRequest(method="GET", url=url, headers={"User-Agent": USER_AGENT}, body=b"")


def read_kannel(callback: Callback) -> Receipt:
    """The receipt in a request to the `dlr-url`."""
    status = callback.query.get("status", "")
    if status not in _STATUSES:
        raise InvalidInput("receipt.status", "status must be 1, 2, 4, 8 or 16", field="status")
    verdict, error = _STATUSES[status]
    said = callback.query.get("answer", "")[:100]
    return Receipt(provider_id="", status=verdict, error=f"{error}: {said}" if error and said else error)
