"""Queries of sites: link state, health reports and their history, credentials."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import check_name, present
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.sites import health as site_health
from fieldpost.central.store.sites import intents, mirrors
from fieldpost.central.store.sites import sites as rows
from fieldpost.central.store.sites.sites import Enrolment, SiteRecord, SiteToken
from fieldpost.central.watch.kpis import check_range
from fieldpost.central.watch.shared_read import SharedRead
from fieldpost.clock import Clock
from fieldpost.core.ids import is_id
from fieldpost.core.sites.call_mirror import Mirror
from fieldpost.core.sites.health import (
    Freshness,
    HealthFigures,
    LinkState,
    SiteCondition,
    SiteHealth,
    condition_of,
    link_state,
)
from fieldpost.core.sites.intent import Intent, IntentKind
from fieldpost.core.text import is_label

__all__ = [
    "Enrolment",
    "Fleet",
    "HealthHistory",
    "SiteCredentials",
    "SiteReader",
    "SiteState",
    "SiteToken",
    "worst_first",
]

HISTORY_DEFAULT = timedelta(days=1)
HISTORY_MAX = timedelta(days=366)
POINTS_MAX = 5000


@dataclass(frozen=True, slots=True)
class SiteState:
    """One site: its record at central and its newest health report."""

    record: SiteRecord
    link: LinkState
    health: SiteHealth | None
    """None if it has never reported."""
    mirror: Mirror | None
    open_intents: int

    @property
    def condition(self) -> SiteCondition:
        report = self.health.report if self.health else None
        return condition_of(self.link, report, is_revoked=self.record.revoked_at is not None)

    @property
    def depth(self) -> int | None:
        """How many messages wait there, according to its newest report; None if it has never reported."""
        return self.health.report.depth if self.health else None


@dataclass(frozen=True, slots=True)
class Fleet:
    """All sites, by name."""

    sites: Sequence[SiteState]
    as_of: datetime


@dataclass(frozen=True, slots=True)
class SiteCredentials:
    """The tokens of a site, newest first, and its open enrolment code."""

    record: SiteRecord
    tokens: Sequence[SiteToken]
    enrolment: Enrolment | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class HealthHistory:
    """Stored samples of a site's health in time order; each is valid until the next."""

    site: str
    begin: datetime
    end: datetime
    points: Sequence[tuple[datetime, HealthFigures]]
    is_whole: bool
    """False if there are more points; these are the newest."""


class SiteReader:
    """Reads sites."""

    def __init__(self, store: Store, clock: Clock, by: Freshness) -> None:
        self._store = store
        self.by = by
        self._shared = SharedRead(self._read, clock)

    async def all(self) -> Fleet:
        """All sites, at most moments old."""
        return await self._shared.get()

    async def one(self, name: str) -> tuple[SiteState, datetime]:
        """One site as of now. Raises NotFound."""
        check_name("site", name)
        fleet = await self._store.read(read_fleet, self.by, name, now=self._store.now())
        return present(next(iter(fleet.sites), None), "site", name), fleet.as_of

    async def access(self, name: str) -> SiteCredentials:
        """The tokens and the open code of a site."""
        check_name("site", name)
        return await self._store.read(_access, name, now=self._store.now())

    async def newest_query(self, name: str, kind: IntentKind) -> Intent | None:
        """The newest intent of this kind for this site, with the site's answer."""
        return await self._store.read(intents.newest_of, name, kind) if is_label(name) else None

    async def asked_about(self, name: str, message_ids: Sequence[str]) -> Mapping[str, Intent]:
        """The newest intent of this site for each of these calls or notifications."""
        found = await self._store.read(intents.about_these, [one for one in message_ids if is_id(one)])
        return {one.message_id: one for one in reversed(found) if one.site == name and one.message_id}

    async def history(self, name: str, begin: datetime | None = None, end: datetime | None = None) -> HealthHistory:
        """The health of a site from `begin` (by default a day before the end) to `end` (by default now)."""
        _, now = await self.one(name)
        until = end or now
        since = begin or until - HISTORY_DEFAULT
        check_range(since, until, HISTORY_MAX)
        points = await self._store.read(site_health.history, name, begin=since, end=until, limit=POINTS_MAX + 1)
        return HealthHistory(name, since, until, points[-POINTS_MAX:], len(points) <= POINTS_MAX)

    async def _read(self) -> Fleet:
        return await self._store.read(read_fleet, self.by, now=self._store.now())


def worst_first(sites: Iterable[SiteState]) -> list[SiteState]:
    """Sites by condition, the worst first, then by the number of waiting messages."""
    order = {condition: rank for rank, condition in enumerate(SiteCondition)}
    return sorted(sites, key=lambda site: (order[site.condition], -(site.depth or 0), site.record.name))


def read_fleet(conn: Connection, by: Freshness, name: str | None = None, *, now: datetime | None) -> Fleet:
    """All sites, or the one of this name, judged by the database's clock."""
    as_of = database_time(conn, now)
    if name is None:
        records = rows.all_sites(conn)
        health = site_health.load_all(conn)
        found = mirrors.load_all(conn)
    else:
        record = rows.get(conn, name)
        records = [record] if record else []
        report = site_health.get(conn, name)
        health = {name: report} if report else {}
        found = mirrors.load_all(conn, [name])
    waiting = intents.open_counts(conn)
    return Fleet(
        [
            SiteState(
                record,
                link_state(health.get(record.name), as_of, by),
                health.get(record.name),
                found.get(record.name),
                waiting.get(record.name, 0),
            )
            for record in records
        ],
        as_of,
    )


def _access(conn: Connection, name: str, *, now: datetime | None) -> SiteCredentials:
    record = present(rows.get(conn, name), "site", name)
    as_of = database_time(conn, now)
    return SiteCredentials(record, rows.tokens_of(conn, name), rows.open_enrolment(conn, name, as_of), as_of)
