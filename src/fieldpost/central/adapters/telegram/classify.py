"""The meaning of an answer of Telegram's Bot API.

answer                                  target     why
200 with ok true                        delivered
400 with migrate_to_chat_id             moved      the group became a supergroup: the message follows it at once
400, 403                                failed     no such chat; the bot was blocked, or removed from the group
401, 404                                held       the token is wrong or was revoked
429                                     paused     for parameters.retry_after
408, 5xx, 2xx without ok                transient
other 4xx                               failed
"""

from datetime import timedelta

from fieldpost.central.adapters.answers import ReadAnswer, Verdict, answer_text, by_status, object_in, text_in
from fieldpost.outbound.client import HttpAnswer


def classify(answer: HttpAnswer, retry_after: timedelta | None) -> ReadAnswer:
    said = object_in(answer)
    description = text_in(said, "description")
    parameters = said.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    match answer.status:
        case 200 if said.get("ok") is True:
            return ReadAnswer(Verdict.DELIVERED, "200 ok")
        case 400 if type(chat := parameters.get("migrate_to_chat_id")) is int:
            moved = f"the chat is now {chat}: change the target of the list"
            return ReadAnswer(Verdict.MOVED, moved, address=str(chat))
        case 401 | 404:
            return ReadAnswer(Verdict.HELD, f"the bot's token is not valid: {answer_text(answer, description)}")
        case 429:
            asked_s = parameters.get("retry_after")
            wait = timedelta(seconds=asked_s) if type(asked_s) is int and 0 < asked_s < 10**6 else retry_after
            return by_status(answer, wait, description)
        case status if 200 <= status < 300:
            return ReadAnswer(Verdict.TRANSIENT, f"{answer_text(answer, description)}: not an answer of the Bot API")
        case _:
            return by_status(answer, retry_after, description)
