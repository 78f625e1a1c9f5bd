"""Queries of the audit log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.search import audit_entries
from fieldpost.central.watch.cursor import LIMIT_DEFAULT, page_start, to_cursor
from fieldpost.core.audit import AuditEntry
from fieldpost.core.search.audit_filter import AuditFilter
from fieldpost.core.search.page_key import PageKey


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Newest first; `next_cursor` is None on the last page. A short or empty page may have a next one: rare entries are
    searched in pieces, so that no query takes long."""

    entries: Sequence[AuditEntry]
    next_cursor: str | None
    searched_to: datetime | None
    """The time back to which the log was searched, if not to its beginning."""
    as_of: datetime


class AuditReader:
    """Reads the audit log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self, wanted: AuditFilter | None = None, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> AuditPage:
        """A page. Raises InvalidInput for an invalid limit or cursor."""
        before = page_start(limit, cursor)
        return await self._store.read(_page, wanted or AuditFilter(), limit, before, now=self._store.now())


def _page(
    conn: Connection, wanted: AuditFilter, limit: int, before: PageKey | None, *, now: datetime | None
) -> AuditPage:
    as_of = database_time(conn, now)
    found = audit_entries.find(conn, wanted, limit=limit, before=before)
    end = found.end
    return AuditPage(found.entries, to_cursor(end) if end else None, end[0] if end else None, as_of)
