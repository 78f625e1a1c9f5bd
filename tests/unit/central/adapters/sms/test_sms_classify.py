"""Each documented answer of a gateway has one meaning, and so has each receipt."""

from datetime import timedelta
from typing import Any

import pytest
from twilio.request_validator import RequestValidator

from fieldpost.central.adapters.answers import ReadAnswer, Verdict
from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.central.adapters.sms.classify import classify_http, classify_kannel, classify_twilio
from fieldpost.core.delivery.receipt import Callback, Receipt, ReceiptStatus
from fieldpost.core.errors import Denied, InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.testing.providers import FakeTwilio
from support.answers import answer

ACCOUNT = "AC" + "0123456789abcdef" * 2
TOKEN = "canary-of-the-auth-token"
KANNEL = {"dialect": "kannel", "url": "http://127.0.0.1/", "username": "a", "password": Secret("b")}
TWILIO = {"dialect": "twilio", "username": ACCOUNT, "password": Secret(TOKEN), "sender": "+15005550006"}
URL = "https://fieldpost.example/receipts/v1/texts/token-1"


@pytest.mark.parametrize(
    ("status", "said", "verdict"),
    [
        (202, "0: Accepted for delivery", Verdict.ACCEPTED),
        (202, "3: Queued for later delivery", Verdict.ACCEPTED),
        (200, "<html>a proxy</html>", Verdict.TRANSIENT),
        (400, "Empty text and no default, rejected", Verdict.FAILED),
        (403, "Authorization failed for sendsms", Verdict.HELD),
        (404, "", Verdict.FAILED),
        (408, "", Verdict.TRANSIENT),
        (429, "", Verdict.CHANNEL_PAUSED),
        (503, "Temporal failure, try again later.", Verdict.TRANSIENT),
    ],
)
def test_an_answer_of_kannel_has_one_meaning(status: int, said: str, verdict: Verdict) -> None:
    assert classify_kannel(answer(status, said), None).verdict is verdict


def error(code: int, message: str = "words") -> dict[str, Any]:
    return {"code": code, "message": message, "more_info": "https://…", "status": 400}


@pytest.mark.req("CHN-02")
@pytest.mark.parametrize(
    ("status", "said", "read"),
    [
        (201, {"sid": "SM1", "status": "queued"}, ReadAnswer(Verdict.ACCEPTED, "201", provider_id="SM1")),
        (400, error(21211), ReadAnswer(Verdict.FAILED, "the number is invalid (21211): 400 words")),
        (400, error(21610), ReadAnswer(Verdict.FAILED, "the recipient has unsubscribed (21610): 400 words")),
        (
            400,
            error(21612),
            ReadAnswer(Verdict.FAILED, "the number cannot be reached from this sender (21612): 400 words"),
        ),
        (400, error(21614), ReadAnswer(Verdict.FAILED, "the number is not a mobile number (21614): 400 words")),
        (400, error(21606), ReadAnswer(Verdict.FAILED, "400 words (21606)")),
        (401, error(20003), ReadAnswer(Verdict.HELD, "the account or its token is not valid: 401 words")),
        (401, "", ReadAnswer(Verdict.HELD, "the account or its token is not valid: 401")),
        (
            429,
            error(20429),
            ReadAnswer(Verdict.CHANNEL_PAUSED, "too many requests: 429 words", timedelta(seconds=60)),
        ),
        (429, "", ReadAnswer(Verdict.CHANNEL_PAUSED, "too many requests: 429", timedelta(seconds=60))),
        (500, error(20500), ReadAnswer(Verdict.TRANSIENT, "500 words (20500)")),
        (503, "", ReadAnswer(Verdict.TRANSIENT, "503")),
        (408, "", ReadAnswer(Verdict.TRANSIENT, "408")),
        (200, "{}", ReadAnswer(Verdict.TRANSIENT, "200 {}: Twilio answers 201 with the sid of the message")),
    ],
)
def test_an_answer_of_twilio_has_one_meaning(status: int, said: object, read: ReadAnswer) -> None:
    assert classify_twilio(answer(status, said), None) == read


TELTONIKA = {"answers": "OK=delivered, ERROR=retry, TIMEOUT=retry, WRONG_NUMBER=failed, NO=held, BUSY=pause"}


@pytest.mark.parametrize(
    ("status", "said", "settings", "verdict"),
    [
        (200, "OK\n", TELTONIKA, Verdict.DELIVERED),
        (200, "ERROR", TELTONIKA, Verdict.TRANSIENT),
        (200, "TIMEOUT", TELTONIKA, Verdict.TRANSIENT),
        (200, "wrong_number", TELTONIKA, Verdict.FAILED),
        (200, "no credit", TELTONIKA, Verdict.HELD),
        (200, "BUSY", TELTONIKA, Verdict.CHANNEL_PAUSED),
        (200, "something else", TELTONIKA, Verdict.TRANSIENT),
        (200, "anything", {"answers": ""}, Verdict.DELIVERED),
        (400, "OK", TELTONIKA, Verdict.FAILED),
        (401, "", TELTONIKA, Verdict.HELD),
        (403, "", {"answers": ""}, Verdict.HELD),
        (429, "", TELTONIKA, Verdict.CHANNEL_PAUSED),
        (500, "OK", TELTONIKA, Verdict.TRANSIENT),
    ],
)
def test_an_answer_of_another_gateway_is_read_by_its_table(
    status: int, said: str, settings: dict[str, str], verdict: Verdict
) -> None:
    assert classify_http(answer(status, said), None, settings).verdict is verdict


def kannel_callback(**query: str) -> Callback:
    return Callback(method="GET", url=URL, headers={}, query=query, body=b"")


@pytest.mark.dec("DEC-89")
@pytest.mark.parametrize(
    ("status", "receipt"),
    [
        ("1", Receipt(provider_id="", status=ReceiptStatus.DELIVERED)),
        (
            "2",
            Receipt(provider_id="", status=ReceiptStatus.FAILED, error="the network could not deliver it: NACK/11"),
        ),
        ("4", Receipt(provider_id="", status=ReceiptStatus.IN_TRANSIT)),
        ("8", Receipt(provider_id="", status=ReceiptStatus.IN_TRANSIT)),
        ("16", Receipt(provider_id="", status=ReceiptStatus.FAILED, error="the network rejected it: NACK/11")),
    ],
)
def test_a_receipt_of_kannel_has_one_meaning(status: str, receipt: Receipt) -> None:
    assert SmsAdapter().read_callback(KANNEL, kannel_callback(status=status, answer="NACK/11")) == receipt


@pytest.mark.req("CHN-08")
@pytest.mark.parametrize("query", [{}, {"status": ""}, {"status": "3"}, {"status": "%d"}, {"status": "1" * 1000}])
def test_a_receipt_of_kannel_without_a_known_status_is_rejected(query: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="status must be"):
        SmsAdapter().read_callback(KANNEL, kannel_callback(**query))


@pytest.mark.req("CHN-08")
@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        ("queued", None, ReceiptStatus.IN_TRANSIT),
        ("sending", None, ReceiptStatus.IN_TRANSIT),
        ("sent", None, ReceiptStatus.IN_TRANSIT),
        ("delivered", None, ReceiptStatus.DELIVERED),
        ("read", None, ReceiptStatus.DELIVERED),
        ("undelivered", 30003, ReceiptStatus.DUE),
        ("undelivered", 30008, ReceiptStatus.DUE),
        ("undelivered", 30005, ReceiptStatus.FAILED),
        ("failed", 30007, ReceiptStatus.FAILED),
        ("failed", None, ReceiptStatus.FAILED),
        ("canceled", None, ReceiptStatus.FAILED),
    ],
)
def test_a_signed_receipt_of_twilio_has_one_meaning(status: str, code: int | None, verdict: ReceiptStatus) -> None:
    fake = FakeTwilio(ACCOUNT, TOKEN)
    fake.messages["SM1"] = {"status": status, "error_code": code}
    callback = fake.callback("SM1", URL)
    form = dict(pair.split("=") for pair in callback.body.decode().split("&"))
    assert RequestValidator(TOKEN).validate(URL, form, callback.headers["x-twilio-signature"]), "Twilio's own check"
    receipt = SmsAdapter().read_callback(TWILIO, callback)
    assert (receipt.provider_id, receipt.status) == ("SM1", verdict)
    assert bool(receipt.error) == (verdict in (ReceiptStatus.FAILED, ReceiptStatus.DUE))


@pytest.mark.req("CHN-08")
def test_a_receipt_of_twilio_with_a_wrong_signature_or_status_is_rejected() -> None:
    fake = FakeTwilio(ACCOUNT, TOKEN)
    fake.messages["SM1"] = {"status": "delivered", "error_code": None}
    signed = fake.callback("SM1", URL)
    other_url = Callback(method="POST", url=URL + "x", headers=signed.headers, query={}, body=signed.body)
    forged = Callback(method="POST", url=URL, headers={}, query={}, body=signed.body)
    changed = Callback(method="POST", url=URL, headers=signed.headers, query={}, body=signed.body + b"&a=b")
    for callback in (other_url, forged, changed):
        with pytest.raises(Denied):
            SmsAdapter().read_callback(TWILIO, callback)
    fake.messages["SM1"]["status"] = "exploded"
    with pytest.raises(InvalidInput, match="MessageStatus"):
        SmsAdapter().read_callback(TWILIO, fake.callback("SM1", URL))
