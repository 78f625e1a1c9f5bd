"""Bulk actions as people see them: how many one would be about, how far it has come, what it came to for each row."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import not_found
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import records
from fieldpost.central.store.search import bulk_actions as rows
from fieldpost.central.store.search import parked
from fieldpost.central.store.search.bulk_actions import ActRow
from fieldpost.central.watch.cursor import from_cursor, to_cursor
from fieldpost.central.watch.notifications import LIMIT_DEFAULT, check_limit
from fieldpost.core.bulk import BulkAction, RowOutcome, parked_only
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.notification import Summary
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.page_key import PageKey

__all__ = ["ActPage", "ActRow", "ActStory", "BulkActionReader", "BulkPreview", "RowPage"]

NEWEST = 5
"""How many of them a preview shows."""


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """What an act would be about: `count`, or more where it was not counted to the end. Handing `as_of` to the act
    leaves out what parks from now on."""

    count: int
    is_whole: bool
    as_of: datetime
    newest: tuple[Summary, ...] = ()
    """Some of them."""


@dataclass(frozen=True, slots=True)
class RowPage:
    rows: tuple[ActRow, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ActPage:
    """Acts, newest first."""

    acts: tuple[BulkAction, ...]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class ActStory:
    """An act with a page of its rows, and the notifications of these that are still there, by their ids."""

    act: BulkAction
    page: RowPage
    notifications: Mapping[str, Summary]
    as_of: datetime


class BulkActionReader:
    """Looking at bulk actions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def preview(self, wanted: Filter) -> BulkPreview:
        """How many parked notifications fit."""
        return await self._store.read(_preview, parked_only(wanted), now=self._store.now())

    async def newest(self, limit: int = LIMIT_DEFAULT) -> list[BulkAction]:
        return await self._store.read(rows.newest, check_limit(limit))

    async def page(self, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None) -> ActPage:
        """A page of the acts, or InvalidInput when limit or cursor are not to be had."""
        check_limit(limit)
        before = None if cursor is None else from_cursor(cursor)
        return await self._store.read(_page, limit, before, now=self._store.now())

    async def get(self, action_id: str) -> BulkAction:
        found = await self._store.read(rows.get, action_id) if is_id(action_id) else None
        if found is None:
            raise not_found("bulk", action_id, label="bulk action")
        return found

    async def rows(
        self, action_id: str, *, outcome: str | None = None, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> RowPage:
        """The act's notifications in the order in which they are worked off, those with this outcome or all."""
        return (await self.story(action_id, outcome=outcome, limit=limit, cursor=cursor)).page

    async def story(
        self, action_id: str, *, outcome: str | None = None, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> ActStory:
        """The act with a page of its rows and what they are about, read at one moment."""
        check_limit(limit)
        after = 0 if cursor is None else _place(cursor)
        wanted = None if outcome is None else _outcome(outcome)
        if not is_id(action_id):
            raise not_found("bulk", action_id, label="bulk action")
        return await self._store.read(_story, action_id, wanted, limit, after, now=self._store.now())


def _page(conn: Connection, limit: int, before: PageKey | None, *, now: datetime | None) -> ActPage:
    found = rows.newest(conn, limit + 1, before)
    acts = found[:limit]
    end = to_cursor((acts[-1].created_at, acts[-1].action_id)) if len(found) > limit else None
    return ActPage(tuple(acts), end, database_time(conn, now))


def _story(
    conn: Connection, action_id: str, outcome: RowOutcome | None, limit: int, after: int, *, now: datetime | None
) -> ActStory:
    act = rows.get(conn, action_id)
    if act is None:
        raise not_found("bulk", action_id, label="bulk action")
    found = rows.rows_of(conn, action_id, after=after, limit=limit + 1, outcome=outcome)
    page = found[:limit]
    there = records.without_bodies(conn, [row.notification_id for row in page])
    end = str(page[-1].position) if len(found) > limit else None
    return ActStory(act, RowPage(tuple(page), end), there, database_time(conn, now))


def _preview(conn: Connection, wanted: Filter, *, now: datetime | None) -> BulkPreview:
    as_of = database_time(conn, now)
    counted, ids = parked.fitting(conn, wanted, as_of, NEWEST)
    there = records.without_bodies(conn, ids)
    return BulkPreview(counted.count, counted.is_whole, as_of, tuple(there[one] for one in ids if one in there))


def _place(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 9):
        raise InvalidInput(
            "cursor.invalid", "cursor is none that was handed out", field="cursor", hint="begin again without one"
        )
    return int(cursor)


def _outcome(text: str) -> RowOutcome:
    try:
        return RowOutcome(text)
    except ValueError:
        known = ", ".join(RowOutcome)
        raise InvalidInput(
            "bulk.outcome", f"outcome must be one of {known}, not {text[:64]!r}", field="outcome"
        ) from None
