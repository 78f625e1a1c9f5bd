"""Queries of bulk actions: preview, progress, and the outcome of each row."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import not_found, present
from fieldpost.central.access.ownership import is_own_recovery
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import records
from fieldpost.central.store.search import bulk_actions as rows
from fieldpost.central.store.search import parked
from fieldpost.central.store.search.bulk_actions import BulkRow
from fieldpost.central.watch.cursor import LIMIT_DEFAULT, check_limit, invalid_cursor, page_start, to_cursor
from fieldpost.core.bulk import BulkAction, RowOutcome, parked_only
from fieldpost.core.errors import parse_choice
from fieldpost.core.ids import is_id
from fieldpost.core.notification import Summary
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.page_key import PageKey

__all__ = ["BulkActionPage", "BulkActionReader", "BulkActionStory", "BulkPreview", "BulkRow", "RowPage"]

NEWEST = 5
"""How many notifications a preview shows."""


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """How many notifications an action would change; at least `count` if not `is_whole`. An action started with this
    `as_of` leaves out notifications that park later."""

    count: int
    is_whole: bool
    as_of: datetime
    newest: tuple[Summary, ...] = ()
    """The newest of them."""


@dataclass(frozen=True, slots=True)
class RowPage:
    rows: tuple[BulkRow, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class BulkActionPage:
    """Bulk actions, the newest first."""

    actions: tuple[BulkAction, ...]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class BulkActionStory:
    """An action with a page of its rows, and their notifications by id, unless purged."""

    action: BulkAction
    page: RowPage
    notifications: Mapping[str, Summary]
    as_of: datetime


class BulkActionReader:
    """Reads bulk actions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def preview(self, wanted: Filter) -> BulkPreview:
        """How many parked notifications match."""
        return await self._store.read(_preview, parked_only(wanted), now=self._store.now())

    async def newest(self, limit: int = LIMIT_DEFAULT) -> list[BulkAction]:
        return await self._store.read(rows.newest, check_limit(limit))

    async def page(self, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None) -> BulkActionPage:
        """A page of bulk actions. Raises InvalidInput for an invalid limit or cursor."""
        before = page_start(limit, cursor)
        return await self._store.read(_page, limit, before, now=self._store.now())

    async def get(self, action_id: str, owner: str | None = None) -> BulkAction:
        """The action; NotFound also if it is not a recovery of a subscription of this owner, if one is given."""
        found = await self._store.read(_get, action_id, owner) if is_id(action_id) else None
        return present(found, "bulk", action_id, label="bulk action")

    async def rows(
        self,
        action_id: str,
        *,
        owner: str | None = None,
        outcome: str | None = None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> RowPage:
        """The rows of an action in their order, all or those with this outcome."""
        return (await self.story(action_id, owner=owner, outcome=outcome, limit=limit, cursor=cursor)).page

    async def story(
        self,
        action_id: str,
        *,
        owner: str | None = None,
        outcome: str | None = None,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> BulkActionStory:
        """The action with a page of its rows and their notifications, read in one transaction."""
        check_limit(limit)
        after = 0 if cursor is None else _position(cursor)
        wanted = None if outcome is None else parse_choice(RowOutcome, outcome, "bulk.outcome", "outcome")
        if not is_id(action_id):
            raise not_found("bulk", action_id, label="bulk action")
        return await self._store.read(_story, action_id, owner, wanted, limit, after, now=self._store.now())


def _get(conn: Connection, action_id: str, owner: str | None) -> BulkAction | None:
    found = rows.get(conn, action_id)
    return found if found is not None and is_own_recovery(conn, found, owner) else None


def _page(conn: Connection, limit: int, before: PageKey | None, *, now: datetime | None) -> BulkActionPage:
    found = rows.newest(conn, limit + 1, before)
    actions = found[:limit]
    end = to_cursor((actions[-1].created_at, actions[-1].action_id)) if len(found) > limit else None
    return BulkActionPage(tuple(actions), end, database_time(conn, now))


def _story(
    conn: Connection,
    action_id: str,
    owner: str | None,
    outcome: RowOutcome | None,
    limit: int,
    after: int,
    *,
    now: datetime | None,
) -> BulkActionStory:
    action = present(_get(conn, action_id, owner), "bulk", action_id, label="bulk action")
    found = rows.rows_of(conn, action_id, after=after, limit=limit + 1, outcome=outcome)
    page = found[:limit]
    kept = records.without_bodies(conn, [row.notification_id for row in page])
    end = str(page[-1].position) if len(found) > limit else None
    return BulkActionStory(action, RowPage(tuple(page), end), kept, database_time(conn, now))


def _preview(conn: Connection, wanted: Filter, *, now: datetime | None) -> BulkPreview:
    as_of = database_time(conn, now)
    counted, ids = parked.fitting(conn, wanted, as_of, NEWEST)
    kept = records.without_bodies(conn, ids)
    return BulkPreview(counted.count, counted.is_whole, as_of, tuple(kept[one] for one in ids if one in kept))


def _position(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 9):
        raise invalid_cursor()
    return int(cursor)
