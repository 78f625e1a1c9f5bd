"""The audit log as people look through it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.search import audit_entries
from fieldpost.central.watch.cursor import from_cursor, to_cursor
from fieldpost.central.watch.notifications import LIMIT_DEFAULT, check_limit
from fieldpost.core.audit import AuditEntry
from fieldpost.core.search.audit_filter import AuditFilter
from fieldpost.core.search.page_key import PageKey


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Newest first; `next_cursor` is None on the last page. A page may be short, even empty, and still have a next:
    what is rare is looked for in pieces, so that no look takes long."""

    entries: Sequence[AuditEntry]
    next_cursor: str | None
    searched_to: datetime | None
    """How far back it looked, where it stopped before the end."""
    as_of: datetime


class AuditReader:
    """Looking through the audit log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self, wanted: AuditFilter | None = None, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> AuditPage:
        """A page, or InvalidInput when limit or cursor are not to be had."""
        check_limit(limit)
        before = None if cursor is None else from_cursor(cursor)
        return await self._store.read(_page, wanted or AuditFilter(), limit, before, now=self._store.now())


def _page(
    conn: Connection, wanted: AuditFilter, limit: int, before: PageKey | None, *, now: datetime | None
) -> AuditPage:
    as_of = database_time(conn, now)
    found = audit_entries.find(conn, wanted, limit=limit, before=before)
    end = found.end
    return AuditPage(found.entries, to_cursor(end) if end else None, end[0] if end else None, as_of)
