"""Queries of notifications: pages, details, groups of parked ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.ownership import is_reachable
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import subscriptions
from fieldpost.central.store.notifications import attempts, audit, breakers, lists, turns, wholes
from fieldpost.central.store.notifications import records as rows
from fieldpost.central.store.notifications.attempts import AttemptRecord
from fieldpost.central.store.search import notifications, parked
from fieldpost.central.store.search.parked import Counted
from fieldpost.central.store.sites import sites
from fieldpost.central.watch.cursor import LIMIT_DEFAULT, page_start, to_cursor
from fieldpost.central.watch.shared_read import SharedRead
from fieldpost.clock import Clock
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery.explain import explain, next_attempt
from fieldpost.core.delivery.holds import kind_of
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.delivery.routing import DeliveryPath, PathDefaults, TypeTraits, lists_of, resolve
from fieldpost.core.errors import NotFound
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.ids import is_id
from fieldpost.core.kpi import Thresholds, is_stuck
from fieldpost.core.notification import Notification, Summary, list_key
from fieldpost.core.search.fingerprint import fingerprint, fingerprint_key
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.wholes import explain_whole, folded

__all__ = [
    "AttemptRecord",
    "Counted",
    "Detail",
    "ErrorGroup",
    "ErrorGroups",
    "NotificationReader",
    "NotificationSummary",
    "Page",
]

NAMES_MAX = 500


@dataclass(frozen=True, slots=True)
class NotificationSummary:
    """One notification of a page."""

    notification: Summary
    attempt_count: int
    is_stuck: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Newest first; `next_cursor` is None on the last page. A short or empty page may have a next one: rare rows are
    searched in pieces, so that no query takes long."""

    lines: tuple[NotificationSummary, ...]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Parked notifications with the same error, apart from addresses, ids and times in it."""

    key: str
    fingerprint: str
    count: int
    first_at: datetime
    last_at: datetime
    example_id: str
    example: str


@dataclass(frozen=True, slots=True)
class ErrorGroups:
    """The largest first; `is_whole` is False when only the newest parked notifications were read."""

    groups: tuple[ErrorGroup, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Detail:
    """One notification with its attempts and audit entries."""

    notification: Notification
    attempts: tuple[AttemptRecord, ...]
    audit: tuple[AuditEntry, ...]
    why: str
    """Why it is in its status, and what happens next."""
    next_attempt_at: datetime | None
    """When the next attempt is possible; None if it is due now or none follows."""
    is_stuck: bool
    channel: str | None
    """The channel of its list at present, if there is one."""
    as_of: datetime
    request_body: str | None = None
    """The first kilobyte of the request to a subscription, for readers who may see it."""
    parts: tuple[NotificationSummary, ...] = ()
    """The parts of a submission to a list of lists, by list; the notification is folded from them then."""


class NotificationReader:
    """Reads notifications."""

    def __init__(
        self, store: Store, clock: Clock, by: Thresholds, types: Mapping[str, TypeTraits] | None = None
    ) -> None:
        self._store = store
        self._by = by
        self._defaults = PathDefaults(types=types or {})
        self._groups = SharedRead(self._read_groups, clock)

    async def page(
        self, wanted: Filter | None = None, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> Page:
        """A page. Raises InvalidInput for an invalid limit or cursor."""
        before = page_start(limit, cursor)
        return await self._store.read(_page, wanted or Filter(), limit, before, self._by, now=self._store.now())

    async def parked_groups(self) -> ErrorGroups:
        """Parked notifications by error, at most moments old."""
        return await self._groups.get()

    async def of_list(self, list_name: str) -> tuple[Counted, Counted]:
        """The numbers of waiting and of parked notifications of this list."""
        return await self._store.read(parked.of_list, list_name)

    async def detail(self, notification_id: str, source: str | None = None, owner: str | None = None) -> Detail:
        """The notification with targets, attempts and audit entries, or the whole with its parts, read in one
        transaction.

        Raises NotFound, also for one of another source, or of a subscription of another owner, than the given one.
        """
        if not is_id(notification_id):
            raise NotFound("notification.unknown", "this notification does not exist")
        return await self._store.read(
            _detail, notification_id, source, owner, self._by, self._defaults, now=self._store.now()
        )

    async def names(self) -> tuple[list[str], list[str]]:
        """The first NAMES_MAX names of sites and of lists, as choices for a filter."""
        return await self._store.read(_names)

    async def these(self, ids: Sequence[str]) -> tuple[Mapping[str, Summary], datetime]:
        """The existing ones of these notifications, by id, and the time of the query."""
        return await self._store.read(_these, ids, now=self._store.now())

    async def of_site(self, notification_id: str, site: str) -> Notification:
        """A notification of this site, or a whole folded from its parts; NotFound for those of other sites."""
        found = await self._store.read(_of_site, notification_id, site) if is_id(notification_id) else None
        if found is None:
            raise NotFound("notification.unknown", "this site has no such notification")
        return found

    async def _read_groups(self) -> ErrorGroups:
        errors, is_whole = await self._store.read(parked.errors)
        return ErrorGroups(_grouped(errors), is_whole)


def _page(
    conn: Connection, wanted: Filter, limit: int, before: PageKey | None, by: Thresholds, *, now: datetime | None
) -> Page:
    as_of = database_time(conn, now)
    resolved = wanted.resolved(as_of, by)
    if resolved is None:
        return Page((), None, as_of)
    found = notifications.find(conn, resolved, limit=limit, before=before)
    counts = attempts.counts(conn, [n.notification_id for n in found.notifications])
    lines = tuple(
        NotificationSummary(n, counts.get(n.notification_id, 0), is_stuck(n, as_of, by.stuck_after))
        for n in found.notifications
    )
    return Page(lines, to_cursor(found.end) if found.end else None, as_of)


def _names(conn: Connection) -> tuple[list[str], list[str]]:
    return sorted(site.name for site in sites.all_sites(conn))[:NAMES_MAX], lists.names(conn, NAMES_MAX)


def _these(conn: Connection, ids: Sequence[str], *, now: datetime | None) -> tuple[Mapping[str, Summary], datetime]:
    return rows.without_bodies(conn, ids), database_time(conn, now)


def _grouped(errors: Sequence[parked.ParkedError]) -> tuple[ErrorGroup, ...]:
    same: dict[str, list[parked.ParkedError]] = {}
    for error in errors:
        same.setdefault(fingerprint(error.error), []).append(error)
    groups = []
    for text, found in same.items():
        newest = max(found, key=lambda error: error.last_at)
        groups.append(
            ErrorGroup(
                fingerprint_key(newest.error),
                text,
                sum(error.count for error in found),
                min(error.first_at for error in found),
                newest.last_at,
                newest.notification_id,
                newest.error,
            )
        )
    return tuple(sorted(groups, key=lambda group: (-group.count, group.key)))


def _detail(
    conn: Connection,
    notification_id: str,
    source: str | None,
    owner: str | None,
    by: Thresholds,
    defaults: PathDefaults,
    *,
    now: datetime | None,
) -> Detail:
    found = rows.get(conn, notification_id, source)
    if found is None and owner is None:
        whole = _whole_detail(conn, notification_id, source, by, defaults, now)
        if whole is not None:
            return whole
    if found is None or not is_reachable(conn, found.delivery_key, owner):
        raise NotFound("notification.unknown", "this notification does not exist")
    as_of = database_time(conn, now)
    breaker = breakers.load(conn, [found.held_by]).get(found.held_by) if found.held_by else None
    path = resolve(lists.directory_of(conn, [found.delivery_key]), found.delivery_key, defaults)
    turn_at = _turn_at(conn, found, path, as_of, defaults)
    return Detail(
        found,
        tuple(attempts.history(conn, notification_id)),
        tuple(audit.of_notification(conn, notification_id)),
        explain(
            found, rows.claim_of(conn, notification_id), breaker, as_of, _auth_expires_at(conn, found), turn_at=turn_at
        ),
        next_attempt(found, breaker, as_of, turn_at),
        is_stuck(found, as_of, by.stuck_after),
        path.channel_name if isinstance(path, DeliveryPath) else None,
        as_of,
    )


def _of_site(conn: Connection, notification_id: str, site: str) -> Notification | None:
    found = rows.get(conn, notification_id, site)
    if found is None and (whole := wholes.get(conn, notification_id, site)) is not None:
        return folded(*whole)
    return found


def _whole_detail(
    conn: Connection,
    whole_id: str,
    source: str | None,
    by: Thresholds,
    defaults: PathDefaults,
    now: datetime | None,
) -> Detail | None:
    found = wholes.get(conn, whole_id, source)
    if found is None:
        return None
    whole, parts = found
    as_of = database_time(conn, now)
    held = breakers.load(conn, [part.held_by for part in parts if part.held_by])
    counts = attempts.counts(conn, [part.notification_id for part in parts])
    directory = lists.directory_of(conn, [part.delivery_key for part in parts])
    turn_at = {
        part.notification_id: _turn_at(conn, part, resolve(directory, part.delivery_key, defaults), as_of, defaults)
        for part in parts
    }
    whys = [
        explain(
            part,
            rows.claim_of(conn, part.notification_id),
            held.get(part.held_by or ""),
            as_of,
            turn_at=turn_at[part.notification_id],
        )
        for part in parts
    ]
    attempts_at = [
        next_attempt(part, held.get(part.held_by or ""), as_of, turn_at[part.notification_id]) for part in parts
    ]
    lines = tuple(
        NotificationSummary(part, counts.get(part.notification_id, 0), is_stuck(part, as_of, by.stuck_after))
        for part in parts
    )
    return Detail(
        folded(whole, parts),
        (),
        tuple(audit.of_notification(conn, whole_id)),
        explain_whole(whole, list(zip(parts, whys, strict=True))),
        min((at for at in attempts_at if at is not None), default=None),
        any(line.is_stuck for line in lines),
        None,
        as_of,
        parts=lines,
    )


def _auth_expires_at(conn: Connection, n: Notification) -> datetime | None:
    if not n.delivery_key.startswith(SUBSCRIPTION_KEY):
        return None
    found = subscriptions.get(conn, n.delivery_key.removeprefix(SUBSCRIPTION_KEY))
    return None if found is None else found.auth_expires_at


def _turn_at(
    conn: Connection, n: Notification, path: DeliveryPath | PermanentFailure, at: datetime, defaults: PathDefaults
) -> datetime | None:
    """When the turn of a notification comes that waits for a rate; None for others."""
    if n.held_by is None or not kind_of(n.held_by).is_queue or not isinstance(path, DeliveryPath):
        return None
    queues = {n.delivery_key: path.rates}
    if any(key != n.delivery_key for key, _ in path.rates) and path.channel_name:
        directory = lists.directory(conn)
        found = (resolve(directory, list_key(name), defaults) for name in lists_of(directory, path.channel_name))
        queues |= {one.delivery_key: one.rates for one in found if isinstance(one, DeliveryPath)}
    # While the channel, or the list, has been asked to wait, nothing of its queue starts.
    breaker = breakers.load(conn, [path.breaker_key]).get(path.breaker_key)
    start = breaker.wait_until if breaker is not None and breaker.wait_until is not None else at
    return turns.forecast(conn, n.held_by, (n.due_at or at, n.notification_id), queues, max(at, start))
