"""The meaning of an answer of an incoming webhook of Slack.

answer                                     target     why
200 `ok`                                   delivered
200 with another text                      transient  not Slack's answer (style text: delivered)
403 action_prohibited, invalid_token       failed     the hook is of no use until somebody changes it
404 no_service, no_team, channel_not_found failed
410 channel_is_archived                    failed
400 invalid_payload, other 4xx             failed
429                                        paused     for Retry-After, else 30 s
408, 5xx                                   transient
"""

from datetime import timedelta

from fieldpost.central.adapters.answers import ReadAnswer, Verdict, answer_text, by_status
from fieldpost.outbound.client import HttpAnswer

PAUSE = timedelta(seconds=30)


def classify(answer: HttpAnswer, retry_after: timedelta | None, *, is_slack: bool = True) -> ReadAnswer:
    if is_slack and 200 <= answer.status < 300 and answer.body.strip() != b"ok":
        return ReadAnswer(Verdict.TRANSIENT, f"{answer_text(answer)}: Slack answers ok")
    return by_status(answer, retry_after, pause=PAUSE)
