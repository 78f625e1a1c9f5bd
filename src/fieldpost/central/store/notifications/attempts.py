"""Attempts: the value that ends one, and the history of a notification's attempts."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Boolean, Connection, Integer, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.ids import NotificationId

ClaimKey = tuple[str, int]
"""A notification's id with its claim token. One node may still work under an older claim of the same row."""


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt with its outcome and the transition decided from it, to be applied under its token."""

    notification_id: NotificationId
    token: int
    transition: Transition
    outcome: str
    error: str | None
    phase: str | None
    reply: str | None
    duration_ms: int
    finished_at: datetime

    @property
    def claim(self) -> ClaimKey:
        return self.notification_id, self.token


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One row of `attempts`. Without an outcome the attempt still runs, or its node died."""

    token: int
    cycle: int
    node_id: str
    is_lone: bool
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    phase: str | None
    reply: str | None
    error: str | None
    duration_ms: int | None


_history = Statement(
    """
    select claim_token as token, cycle, node_id, is_lone, started_at, finished_at, outcome, phase, reply, error,
        duration_ms
    from attempts where notification_id = :notification_id order by claim_token
    """,
    result={
        "token": BigInteger,
        "cycle": Integer,
        "node_id": Text,
        "is_lone": Boolean,
        "started_at": Moment,
        "finished_at": Moment,
        "outcome": Text,
        "phase": Text,
        "reply": Text,
        "error": Text,
        "duration_ms": BigInteger,
    },
)

_counts = Statement(
    """
    select notification_id, count(*) as attempts from attempts where notification_id {any:ids}
    group by notification_id
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, "attempts": BigInteger},
)


def history(conn: Connection, notification_id: str) -> list[AttemptRecord]:
    """All attempts of a notification, over all its cycles, oldest first."""
    return [AttemptRecord(**row._mapping) for row in _history.run(conn, notification_id=notification_id)]


def counts(conn: Connection, ids: Collection[str]) -> dict[str, int]:
    """The number of attempts of each of these notifications; those without any are left out."""
    found = _counts.run(conn, ids=list(ids)) if ids else []
    return {row.notification_id: row.attempts for row in found}
