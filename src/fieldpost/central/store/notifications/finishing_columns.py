"""The columns that the end of an attempt writes, shared by the statements for both databases."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from sqlalchemy import BigInteger

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.statement import ParameterKind
from fieldpost.central.store.notifications.attempts import Finished
from fieldpost.core.delivery.lifecycle import Transition

CLAIM: Mapping[str, ParameterKind] = {"notification_id": "id", "claim_token": "int"}
CLAIM_TYPES = {"notification_id": Id, "claim_token": BigInteger}
TRANSITION: Mapping[str, ParameterKind] = {
    "status": "text",
    "retry_count": "int",
    "last_error": "text",
    "last_attempt_at": "moment",
    "next_attempt_at": "moment",
    "due_at": "moment",
    "delivered_at": "moment",
    "terminal_at": "moment",
    "held_by": "text",
    "held_reason": "text",
    "is_timed": "bool",
}
END: Mapping[str, ParameterKind] = {
    "finished_at": "moment",
    "outcome": "text",
    "phase": "text",
    "reply": "text",
    "error": "text",
    "duration_ms": "int",
    "exchanges_text": "text",
}
SET_FREE = "version = notifications.version + 1, orphan_count = 0, claim_owner = null, lease_until = null"
SET_ROW = ", ".join(f"{name} = u.{name}" for name in TRANSITION) + f", {SET_FREE}"
SET_END = ", ".join(f"{name} = u.{name}" for name in END if name != "exchanges_text")
# The right to write: no other node has taken the row since.
IS_OWNED = """
    notifications.notification_id = u.notification_id and notifications.claim_token = u.claim_token
    and notifications.claim_owner = :owner
"""
IS_ITS_ATTEMPT = """
    attempts.notification_id = u.notification_id and attempts.claim_token = u.claim_token
    and (attempts.finished_at is null or attempts.outcome = 'abandoned')
"""
_of_transition = attrgetter(*(name for name in TRANSITION if name != "status"))
end_row: Callable[[Finished], tuple[Any, ...]] = attrgetter(*END)


def transition_row(t: Transition) -> tuple[Any, ...]:
    return t.status.value, *_of_transition(t)
