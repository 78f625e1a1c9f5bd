"""The meaning of an HTTP status for a cached call.

2xx           taken      the call was carried out
408, 429      not now    the system asks for a retry
5xx           not now    the system has a problem, not the call
3xx           refused    redirects are not followed: the definition must have the right URL
other 4xx     refused    the same call would be refused again
other         not now    not an HTTP status: a proxy or device in between answered
"""

from enum import StrEnum

_ASKS_FOR_ANOTHER_TRY = frozenset((408, 429))


class Meaning(StrEnum):
    TAKEN = "taken"
    REFUSED = "refused"
    NOT_NOW = "not_now"


def meaning_of(status: int) -> Meaning:
    """The meaning of a response with this status."""
    if 200 <= status <= 299:
        return Meaning.TAKEN
    if 300 <= status <= 499 and status not in _ASKS_FOR_ANOTHER_TRY:
        return Meaning.REFUSED
    return Meaning.NOT_NOW
