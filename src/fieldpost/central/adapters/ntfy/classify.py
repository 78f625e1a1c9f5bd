"""The meaning of an answer of an ntfy server.

answer                   target           why
2xx                      delivered
401, 403                 held             the token has no access: the channel's matter
429                      channel paused   60 s; an hour with code 42908, the daily quota
408, 5xx                 transient
400, 404, 413, others    failed           the topic or the message
"""

from dataclasses import replace
from datetime import timedelta

from fieldpost.central.adapters.answers import ReadAnswer, Verdict, answer_text, by_status, object_in, text_in
from fieldpost.outbound.client import HttpAnswer

PAUSE = timedelta(seconds=60)
QUOTA_PAUSE = timedelta(hours=1)
DAILY_QUOTA = 42908


def classify(answer: HttpAnswer, retry_after: timedelta | None) -> ReadAnswer:
    said = object_in(answer)
    error = text_in(said, "error")
    match answer.status:
        case status if 200 <= status < 300:
            return ReadAnswer(Verdict.DELIVERED, str(status))
        case 401 | 403:
            return ReadAnswer(Verdict.HELD, f"the server denied access: {answer_text(answer, error)}")
        case 429:
            pause = QUOTA_PAUSE if said.get("code") == DAILY_QUOTA else PAUSE
            paused = by_status(answer, retry_after, error, pause=pause)
            return replace(paused, verdict=Verdict.CHANNEL_PAUSED)
        case _:
            return by_status(answer, retry_after, error)
