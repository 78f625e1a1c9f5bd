"""Attempts: the value that ends one, and the history of a notification's attempts."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Connection, Integer, Text

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.core.delivery.exchange import Exchange, HttpTry
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


_history = Statement(
    """
    select claim_token as token, cycle, node_id, is_lone, started_at, finished_at, outcome, phase, reply, error,
        duration_ms, exchanges
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
        "exchanges": Json,
    },
)

_add_exchanges = Statement(
    """
    update attempts set exchanges = cast(u.exchanges as jsonb) from {rows}
    where attempts.notification_id = u.notification_id and attempts.claim_token = u.claim_token
    """,
    sqlite="""
    update attempts set exchanges = u.exchanges from {rows}
    where attempts.notification_id = u.notification_id and attempts.claim_token = u.claim_token
    """,
    rows={"notification_id": "id", "claim_token": "int", "exchanges": "text"},
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
    return [
        AttemptRecord(**{**row._mapping, "exchanges": tuple(map(_exchange, row.exchanges or ()))})
        for row in _history.run(conn, notification_id=notification_id)
    ]


def add_exchanges(conn: Connection, exchanges: Sequence[tuple[str, int, Sequence[Exchange]]]) -> None:
    """Keep the requests and responses of these attempts: (notification id, claim token, exchanges)."""
    if exchanges:
        rows = [(i, token, json.dumps([asdict(one) for one in of_attempt])) for i, token, of_attempt in exchanges]
        _add_exchanges.run(conn, rows)


def _exchange(stored: dict[str, Any]) -> Exchange:
    return Exchange(**stored | {"tries": tuple(HttpTry(**one) for one in stored["tries"])})


def counts(conn: Connection, ids: Collection[str]) -> dict[str, int]:
    """The number of attempts of each of these notifications; those without any are left out."""
    found = _counts.run(conn, ids=list(ids)) if ids else []
    return {row.notification_id: row.attempts for row in found}
