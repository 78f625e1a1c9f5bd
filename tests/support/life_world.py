"""Where lives are walked: a real store with its lists, the clock, and how to see a row as the model writes it."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, delete, select

from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.notifications import NotificationActions
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import lists
from fieldpost.central.store.schema import audit_tables, notification_tables
from fieldpost.core.ids import new_id
from fieldpost.core.lists import NotificationList
from fieldpost.testing import ManualClock
from support.life_model import PARKS_UNCERTAIN, TARGETS, Attempt, Row

T = TypeVar("T")

START = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


class World:
    """Shared by all lives of a walk: opening a store for each would cost more than the lives. It has an event loop of
    its own, so it needs a thread that has none (`support.databases.apart`)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock(START)
        self._made = 0
        self._opened = ExitStack()

    def __enter__(self) -> "World":
        self._runner = self._opened.enter_context(asyncio.Runner())
        self.store = self.run(self._open())
        self._opened.callback(lambda: self.run(self.store.close()))
        self.ingest = Ingest(self.store, self.clock)
        self.operate = NotificationActions(self.store, self.clock)
        for name, targets in TARGETS.items():
            if targets:
                made = NotificationList(name, "email", targets=targets, park_uncertain=name in PARKS_UNCERTAIN)
                self.write(lists.add_list, made, START)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    async def _open(self) -> Store:
        return open_store(self.url, self.clock)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def write(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self.run(self.store.write(function, *args, **kwargs))

    def begin_anew(self) -> None:
        """Another life: no rows, the clock as at the start. The audit is append-only; no id comes twice."""
        self.write(_delete_all)
        self.clock.step((START - self.clock.now()).total_seconds())

    def new_id(self) -> str:
        self._made += 1
        return new_id(START, self._made.to_bytes(5, "big") * 2)

    def look(self, names: Mapping[str, str]) -> dict[str, Row]:
        """The rows of these ids, by the names given to them."""
        return self.run(self.store.read(_look, names))


def _delete_all(conn: Connection) -> None:
    conn.execute(delete(notification_tables.notifications))


def _look(conn: Connection, names: Mapping[str, str]) -> dict[str, Row]:
    ids = list(names)
    rows = {}
    for found in _select(conn, notification_tables.notifications, "notification_id", ids):
        rows[found.notification_id] = Row(
            list_name=found.list_name,
            created_at=found.created_at,
            status=found.status,
            retry_count=found.retry_count,
            cycle=found.cycle,
            cycle_started_at=found.cycle_started_at,
            due_at=found.due_at,
            next_attempt_at=found.next_attempt_at,
            last_attempt_at=found.last_attempt_at,
            delivered_at=found.delivered_at,
            terminal_at=found.terminal_at,
            held_by=found.held_by,
            version=found.version,
            owner=found.claim_owner,
            token=found.claim_token,
            lease_until=found.lease_until,
            orphan_count=found.orphan_count,
        )
    for found in _select(conn, notification_tables.targets, "notification_id", ids):
        rows[found.notification_id].targets[found.address] = found.status
    for found in _select(conn, notification_tables.attempts, "notification_id", ids):
        attempt = Attempt(found.cycle, found.node_id, found.is_lone, found.outcome)
        rows[found.notification_id].attempts[found.claim_token] = attempt
    for found in _select(conn, audit_tables.audit, "correlation_id", ids):
        rows[found.correlation_id].story += Counter([f"{found.kind} {found.status}"])
    return {names[notification_id]: row for notification_id, row in rows.items()}


def _select(conn: Connection, table: Table, column: str, ids: list[str]) -> Any:
    return conn.execute(select(table).where(table.c[column].in_(ids)))
