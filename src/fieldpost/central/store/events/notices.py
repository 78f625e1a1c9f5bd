"""Notices to be published: written with the change that they report, removed once they are events."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from fieldpost.central.store.schema.event_tables import notices
from fieldpost.core.events.notice import Notice
from fieldpost.core.ids import new_ids


@dataclass(frozen=True, slots=True)
class StoredNotice:
    """A notice with the id of its event."""

    event_id: str
    notice: Notice
    created_at: datetime


def add(conn: Connection, added: Sequence[Notice], now: datetime) -> None:
    if added:
        ids = new_ids(now, os.urandom(10 * len(added)))
        conn.execute(
            insert(notices),
            [
                {
                    "event_id": event_id,
                    "topic": notice.topic,
                    "subscription_id": notice.subscription_id,
                    "payload": dict(notice.data),
                    "created_at": now,
                }
                for event_id, notice in zip(ids, added, strict=True)
            ],
        )


def first(conn: Connection, limit: int) -> list[StoredNotice]:
    """The oldest notices."""
    found = conn.execute(select(notices).order_by(notices.c.event_id).limit(limit)).mappings()
    return [
        StoredNotice(row["event_id"], Notice(row["topic"], row["subscription_id"], row["payload"]), row["created_at"])
        for row in found
    ]


def remove(conn: Connection, ids: Collection[str]) -> None:
    if ids:
        conn.execute(delete(notices).where(notices.c.event_id.in_(list(ids))))
