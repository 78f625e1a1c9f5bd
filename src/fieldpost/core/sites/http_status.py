"""What the status of an external system's answer means for the call: one table, whoever made the attempt.

2xx           taken      it was carried out
408, 429      not now    the system asks for another try, whatever the first digit says
5xx           not now    the system is in trouble, not the call
3xx           refused    redirects are never followed: the definition has to name the right place
other 4xx     refused    the same call would be refused again
all else      not now    no status of HTTP at all: something between us and the system answered
"""

from enum import StrEnum

_ASKS_FOR_ANOTHER_TRY = frozenset((408, 429))


class Meaning(StrEnum):
    TAKEN = "taken"
    REFUSED = "refused"
    NOT_NOW = "not_now"


def meaning_of(status: int) -> Meaning:
    """What to do with a call after an answer of this status."""
    if 200 <= status <= 299:
        return Meaning.TAKEN
    if 300 <= status <= 499 and status not in _ASKS_FOR_ANOTHER_TRY:
        return Meaning.REFUSED
    return Meaning.NOT_NOW
