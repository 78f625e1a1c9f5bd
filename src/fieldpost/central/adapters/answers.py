"""The meaning of providers' answers: verdicts, and the statuses that mean the same for all types."""

import json
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

from fieldpost.core.frozen import frozen
from fieldpost.core.text import printable
from fieldpost.outbound.client import HttpAnswer

PAUSE_DEFAULT = timedelta(seconds=60)
"""The pause after "too many requests" from a provider that names no time."""
ANSWER_CHARACTERS_MAX = 200


class Verdict(StrEnum):
    """The meaning of an answer for its target."""

    DELIVERED = "delivered"
    ACCEPTED = "accepted"
    """The provider will report by a receipt."""
    FAILED = "failed"
    """This target cannot be reached with this message."""
    TRANSIENT = "transient"
    PAUSED = "paused"
    """Too many requests to this target."""
    CHANNEL_PAUSED = "channel_paused"
    """Too many requests over this channel."""
    HELD = "held"
    """The channel's settings or account are at fault."""
    MOVED = "moved"
    """The target has a new address, to which the message is sent at once."""


@frozen
class ReadAnswer:
    """A provider's answer, read by the classification table of its type."""

    verdict: Verdict
    text: str = ""
    """The answer in a few words: the error of a failure, a remark on a delivery."""
    wait: timedelta | None = None
    """How long to pause, or how long to wait before the next attempt."""
    provider_id: str | None = None
    address: str | None = None
    """The new address of a target that moved."""
    remark: str | None = None
    """For administrators, although the target was reached: shown with it."""


def by_status(
    answer: HttpAnswer, retry_after: timedelta | None, said: str | None = None, *, pause: timedelta = PAUSE_DEFAULT
) -> ReadAnswer:
    """The meaning of a status that is the same for all types; the tables list the exceptions. `said` is the part of the
    answer for people."""
    status, text = answer.status, answer_text(answer, said)
    if 200 <= status < 300:
        return ReadAnswer(Verdict.DELIVERED, text)
    if status == 429:
        return ReadAnswer(Verdict.PAUSED, f"too many requests: {text}", retry_after or pause)
    if status == 408 or status >= 500:
        return ReadAnswer(Verdict.TRANSIENT, text, retry_after)
    if 300 <= status < 400:
        text += "; redirects are not followed"
    return ReadAnswer(Verdict.FAILED, text)


def answer_text(answer: HttpAnswer, said: str | None = None) -> str:
    """Status and text of an answer in one line: `403 action_prohibited`."""
    text = answer.body[: 4 * ANSWER_CHARACTERS_MAX].decode("utf-8", "replace") if said is None else said
    line = printable(" ".join(text.split()))[:ANSWER_CHARACTERS_MAX]
    return f"{answer.status} {line}".rstrip()


def object_in(answer: HttpAnswer) -> dict[str, object]:
    """The JSON object of an answer; empty if it is something else."""
    try:
        said = json.loads(answer.body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def text_in(said: Mapping[str, object], name: str) -> str | None:
    """A text of the JSON object of an answer."""
    return str(said[name]) if name in said else None
