"""Attempts: the value that ends one, and the history of a notification's attempts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Boolean, Connection, Integer, Text

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.core.delivery.exchange import Exchange, HttpTry
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.frozen import frozen
from fieldpost.core.ids import NotificationId

ClaimKey = tuple[str, int]
"""A notification's id with its claim token. One node may still work under an older claim of the same row."""


@frozen
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
    exchanges: tuple[Exchange, ...] = ()

    @property
    def claim(self) -> ClaimKey:
        return self.notification_id, self.token

    @property
    def exchanges_text(self) -> str | None:
        """The exchanges in JSON; None where there are none."""
        return msgspec.json.encode(self.exchanges).decode() if self.exchanges else None


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One row of `attempts`. Without an outcome the attempt still runs, or no node has taken over its claim yet."""

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
    exchanges: tuple[Exchange, ...] = ()
    """Requests and responses of a webhook."""


_COLUMNS = """claim_token as token, cycle, node_id, is_lone, started_at, finished_at, outcome, phase, reply, error,
    duration_ms, exchanges"""
_TYPES: Mapping[str, Any] = {
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
    "exchanges": Json,
}
_history = Statement(
    f"select {_COLUMNS} from attempts where notification_id = :notification_id order by claim_token", result=_TYPES
)
_newest = Statement(
    f"""
    select notification_id, {_COLUMNS} from attempts a
    where notification_id {{any:ids}} and claim_token >= coalesce((
        select b.claim_token from attempts b where b.notification_id = a.notification_id
        order by b.claim_token desc limit 1 offset :most - 1), 0)
    order by notification_id, claim_token
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, **_TYPES},
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
    return [_record(row._asdict()) for row in _history.run(conn, notification_id=notification_id)]


def newest(conn: Connection, ids: Collection[str], most: int) -> dict[str, list[AttemptRecord]]:
    """The newest attempts of each of these notifications, at most `most` each, oldest first."""
    found: dict[str, list[AttemptRecord]] = {}
    for row in _newest.run(conn, ids=list(ids), most=most) if ids else ():
        fields = row._asdict()
        found.setdefault(fields.pop("notification_id"), []).append(_record(fields))
    return found


def _record(fields: dict[str, Any]) -> AttemptRecord:
    return AttemptRecord(**{**fields, "exchanges": tuple(map(_exchange, fields["exchanges"] or ()))})


def _exchange(stored: dict[str, Any]) -> Exchange:
    return Exchange(**stored | {"tries": tuple(HttpTry(**one) for one in stored["tries"])})


def counts(conn: Connection, ids: Collection[str]) -> dict[str, int]:
    """The number of attempts of each of these notifications; those without any are left out."""
    found = _counts.run(conn, ids=list(ids)) if ids else []
    return {row.notification_id: row.attempts for row in found}
