"""The meaning of a gateway's answer.

kannel  202 with `0:` or `3:`               accepted   receipts follow by the dlr-url
        403                                 held       user name or password is wrong
        400, other 4xx                      failed     the number, or another parameter
twilio  201                                 accepted   status by question or callback
        20003, or 401 without a code        held       account SID or token is wrong
        20429, or 429 without a code        channel paused
        21211, 21610, 21612, 21614          failed     the number is invalid, unsubscribed or not reachable by SMS
        other 4xx                           failed
http    a text of the table `answers`       as the table says
        2xx without a table                 delivered
        2xx with a text not in the table    transient
        401, 403                            held
        429                                 channel paused
all     408, 5xx                            transient
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from fieldpost.central.adapters.answers import (
    PAUSE_DEFAULT,
    ReadAnswer,
    Verdict,
    answer_text,
    by_status,
    object_in,
    text_in,
)
from fieldpost.central.adapters.sms.gateway import answers_of
from fieldpost.outbound.client import HttpAnswer

WRONG_CREDENTIALS = 20003
TOO_MANY = 20429
NUMBER_ERRORS = {
    21211: "the number is invalid",
    21610: "the recipient has unsubscribed",
    21612: "the number cannot be reached from this sender",
    21614: "the number is not a mobile number",
}
PROVIDER_ID_MAX = 255


def classify_kannel(answer: HttpAnswer, retry_after: timedelta | None) -> ReadAnswer:
    text = answer_text(answer)
    match answer.status:
        case 202 if answer.body.strip().startswith((b"0:", b"3:")):
            return ReadAnswer(Verdict.ACCEPTED, text)
        case 403:
            return ReadAnswer(Verdict.HELD, f"Kannel rejected user name or password: {text}")
        case status if 200 <= status < 300:
            return ReadAnswer(Verdict.TRANSIENT, f"{text}: Kannel answers 202 and 0: or 3:")
        case _:
            return _of_channel(by_status(answer, retry_after))


def classify_twilio(answer: HttpAnswer, retry_after: timedelta | None) -> ReadAnswer:
    said = object_in(answer)
    message, code = text_in(said, "message"), said.get("code")
    text = answer_text(answer, message)
    if answer.status == 201 and isinstance(sid := said.get("sid"), str) and len(sid) <= PROVIDER_ID_MAX:
        return ReadAnswer(Verdict.ACCEPTED, "201", provider_id=sid)
    if code == WRONG_CREDENTIALS or answer.status == 401:
        return ReadAnswer(Verdict.HELD, f"the account or its token is not valid: {text}")
    if code == TOO_MANY:
        return ReadAnswer(Verdict.CHANNEL_PAUSED, f"too many requests: {text}", retry_after or PAUSE_DEFAULT)
    if code in NUMBER_ERRORS:
        return ReadAnswer(Verdict.FAILED, f"{NUMBER_ERRORS[code]} ({code}): {text}")
    if 200 <= answer.status < 300:
        return ReadAnswer(Verdict.TRANSIENT, f"{text}: Twilio answers 201 with the sid of the message")
    read = _of_channel(by_status(answer, retry_after, message))
    return replace(read, text=f"{read.text} ({code})") if isinstance(code, int) else read


def classify_http(answer: HttpAnswer, retry_after: timedelta | None, settings: Mapping[str, object]) -> ReadAnswer:
    text = answer_text(answer)
    table = answers_of(str(settings["answers"]))
    if 200 <= answer.status < 300 and table:
        said = answer.body.decode("utf-8", "replace").strip().lower()
        verdict = next((meaning for start, meaning in table if said.startswith(start)), None)
        if verdict is None:
            return ReadAnswer(Verdict.TRANSIENT, f"{text}: not in the table of answers")
        return ReadAnswer(verdict, text, retry_after)
    if answer.status in (401, 403):
        return ReadAnswer(Verdict.HELD, f"the gateway denied access: {text}")
    return _of_channel(by_status(answer, retry_after))


def _of_channel(read: ReadAnswer) -> ReadAnswer:
    """A gateway's limits are those of the channel."""
    return replace(read, verdict=Verdict.CHANNEL_PAUSED) if read.verdict is Verdict.PAUSED else read
