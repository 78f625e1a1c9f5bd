"""Notifications as people and sites see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.store import attempts, audit, breakers
from fieldpost.central.store import notifications as rows
from fieldpost.central.store.attempts import AttemptRecord
from fieldpost.central.store.engine import Store
from fieldpost.central.store.moment import moment
from fieldpost.central.watch.cursor import from_cursor, to_cursor
from fieldpost.clock import Clock
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import InvalidInput, NotFound
from fieldpost.core.explain import explain
from fieldpost.core.ids import is_id
from fieldpost.core.notification import LIVE, Notification, Status
from fieldpost.core.text import check_label

__all__ = ["AttemptRecord", "Detail", "Filter", "Line", "Notifications", "Page"]

LIMIT_DEFAULT = 50
LIMIT_MAX = 200


@dataclass(frozen=True, slots=True)
class Filter:
    """Which notifications are asked for; what is not given is not filtered by."""

    statuses: tuple[Status, ...] = ()
    list_name: str | None = None
    site: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One notification of a page."""

    notification: Notification
    attempt_count: int
    is_stuck: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Newest first; `next_cursor` is None on the last page."""

    lines: tuple[Line, ...]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class Detail:
    """One notification with its whole story."""

    notification: Notification
    attempts: tuple[AttemptRecord, ...]
    audit: tuple[AuditEntry, ...]
    why: str
    """Why it stands where it stands, and what happens next."""
    is_stuck: bool
    as_of: datetime


class Notifications:
    """Looking at notifications."""

    def __init__(self, store: Store, clock: Clock, stuck_after: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._stuck_after = stuck_after

    async def page(
        self, wanted: Filter | None = None, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> Page:
        """A page, or InvalidInput when limit or cursor are not to be had."""
        if not 1 <= limit <= LIMIT_MAX:
            raise InvalidInput("limit.range", f"limit must be from 1 to {LIMIT_MAX}", field="limit")
        before = None if cursor is None else from_cursor(cursor)
        wanted = _checked(wanted or Filter())
        found, counts = await self._store.read(_page, wanted, limit + 1, before)
        now = self._clock.now()
        lines = tuple(
            Line(n, counts.get(n.notification_id, 0), _is_stuck(n, now, self._stuck_after)) for n in found[:limit]
        )
        last = lines[-1].notification if len(found) > limit else None
        return Page(lines, to_cursor((last.created_at, last.notification_id)) if last else None, now)

    async def detail(self, notification_id: str) -> Detail:
        """The notification with targets, attempts and audit entries, read at one moment; NotFound if there is none."""
        if not is_id(notification_id):
            raise NotFound("notification.unknown", "there is no such notification")
        return await self._store.read(_detail, notification_id, self._stuck_after, now=self._store.now())

    async def of_site(self, notification_id: str, site: str) -> Notification:
        """The site's own notification; another site's is as unknown to it as one that never was."""
        found = await self._store.read(rows.get, notification_id, site) if is_id(notification_id) else None
        if found is None:
            raise NotFound("notification.unknown", "there is no such notification of this site")
        return found


def _checked(wanted: Filter) -> Filter:
    """The filter, or InvalidInput when a name in it is none: a database may refuse the very text."""
    if wanted.list_name is not None:
        check_label(wanted.list_name, "list")
    if wanted.site is not None:
        check_label(wanted.site, "site")
    return wanted


def _page(
    conn: Connection, wanted: Filter, limit: int, before: tuple[datetime, str] | None
) -> tuple[Sequence[Notification], dict[str, int]]:
    found = rows.newest(
        conn, limit=limit, before=before, statuses=wanted.statuses, list_name=wanted.list_name, site=wanted.site
    )
    return found, attempts.counts(conn, [n.notification_id for n in found])


def _detail(conn: Connection, notification_id: str, stuck_after: timedelta, *, now: datetime | None) -> Detail:
    found = rows.get(conn, notification_id)
    if found is None:
        raise NotFound("notification.unknown", "there is no such notification")
    as_of = moment(conn, now)
    breaker = breakers.load(conn, [found.held_by]).get(found.held_by) if found.held_by else None
    return Detail(
        found,
        tuple(attempts.history(conn, notification_id)),
        tuple(audit.of_notification(conn, notification_id)),
        explain(found, rows.claim_of(conn, notification_id), breaker, as_of),
        _is_stuck(found, as_of, stuck_after),
        as_of,
    )


def _is_stuck(n: Notification, now: datetime, stuck_after: timedelta) -> bool:
    return n.status in LIVE and now - n.created_at > stuck_after
