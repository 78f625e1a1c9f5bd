"""Queries of sites and their nodes: link state, health reports and their history, switches, credentials."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import check_name, present
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.sites import epochs, intents, mirrors, nodes, switches
from fieldpost.central.store.sites import health as site_health
from fieldpost.central.store.sites import sites as rows
from fieldpost.central.store.sites.sites import Enrolment, SiteRecord, SiteToken
from fieldpost.central.watch.kpis import check_range
from fieldpost.central.watch.shared_read import SharedRead
from fieldpost.clock import Clock
from fieldpost.core.ids import is_id
from fieldpost.core.pair.switch import EpochSwitch
from fieldpost.core.search.filters import SITE_FILTERS, TextFilter
from fieldpost.core.sites.call_mirror import Mirror
from fieldpost.core.sites.health import (
    Freshness,
    HealthFigures,
    LinkState,
    PairReport,
    SiteCondition,
    SiteHealth,
    best_link,
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
    "SiteFilter",
    "SiteNodeState",
    "SiteReader",
    "SiteState",
    "SiteToken",
    "worst_first",
]

_WITH_ISSUES = (SiteCondition.OFFLINE, SiteCondition.LATE, SiteCondition.FAILING, SiteCondition.STOPPED)
HISTORY_DEFAULT = timedelta(days=1)
HISTORY_MAX = timedelta(days=366)
POINTS_MAX = 5000
SWITCHES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SiteNodeState:
    """One node of a pair, with its newest health report."""

    node: int
    is_leader: bool
    link: LinkState
    added_at: datetime
    health: SiteHealth | None
    """None if it has never reported."""

    @property
    def role(self) -> str:
        return "leader" if self.is_leader else "standby"

    @property
    def pair(self) -> PairReport | None:
        """The part of its report about the pair."""
        return self.health.report.pair if self.health else None


@dataclass(frozen=True, slots=True)
class SiteState:
    """One site: its record at central and its newest health report; that of a pair is its leader's."""

    record: SiteRecord
    link: LinkState
    health: SiteHealth | None
    """None if it has never reported."""
    mirror: Mirror | None
    open_intents: int
    nodes: Sequence[SiteNodeState] = ()
    """The two nodes of a pair; empty for a site with one."""
    epoch: int | None = None
    """The highest epoch of a pair."""
    switch: EpochSwitch | None = None
    """The switch to that epoch."""

    @property
    def is_pair(self) -> bool:
        return len(self.nodes) > 1

    @property
    def leader(self) -> SiteNodeState | None:
        return next((node for node in self.nodes if node.is_leader), None)

    @property
    def standby(self) -> SiteNodeState | None:
        return next((node for node in self.nodes if not node.is_leader), None)

    @property
    def heard_at(self) -> datetime | None:
        """When the newest report of any of its nodes arrived."""
        heard = [one.received_at for one in (self.health, *(node.health for node in self.nodes)) if one]
        return max(heard, default=None)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFilter(TextFilter):
    """Selects sites; fields that are not set select all."""

    declared = SITE_FILTERS

    state: str | None = None
    name: str | None = None

    def matches(self, site: SiteState) -> bool:
        name = site.record.name.casefold()
        return self._is_state_of(site) and all(word in name for word in (self.name or "").casefold().split())

    def _is_state_of(self, site: SiteState) -> bool:
        match self.state:
            case None:
                return True
            case "issues":
                return site.condition in _WITH_ISSUES or _reported(site, "parked", "rejected") > 0
            case "waiting":
                return bool(site.depth)
            case "parked" | "rejected" as count:
                return _reported(site, count) > 0
            case condition:
                return site.condition.value == condition


@dataclass(frozen=True, slots=True)
class SiteCredentials:
    """The nodes of a site, its tokens, newest first, and its open enrolment codes."""

    record: SiteRecord
    nodes: Sequence[int]
    tokens: Sequence[SiteToken]
    enrolments: Sequence[Enrolment]
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
        """The nodes, tokens and open codes of a site."""
        check_name("site", name)
        return await self._store.read(_access, name, now=self._store.now())

    async def switches(self, name: str, limit: int = SWITCHES_SHOWN) -> list[EpochSwitch]:
        """The newest switches of a pair between its nodes, the newest first."""
        return await self._store.read(switches.newest, name, limit)

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


def _reported(site: SiteState, *names: str) -> int:
    if site.health is None or site.condition is SiteCondition.REVOKED:
        return 0
    return sum(getattr(site.health.report, name) for name in names)


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
    pairs = _pairs(conn, by, as_of, name)
    sites = []
    for record in records:
        site = record.name
        state = SiteState(
            record,
            link_state(health.get(site), as_of, by),
            health.get(site),
            found.get(site),
            waiting.get(site, 0),
        )
        if site in pairs:
            members, epoch, switch = pairs[site]
            link = best_link(node.link for node in members)
            state = replace(state, link=link, nodes=members, epoch=epoch, switch=switch)
        sites.append(state)
    return Fleet(sites, as_of)


def _pairs(
    conn: Connection, by: Freshness, as_of: datetime, name: str | None
) -> dict[str, tuple[list[SiteNodeState], int, EpochSwitch | None]]:
    """The nodes, the highest epoch and the switch to it of each site with two nodes."""
    found = {site: records for site, records in nodes.load_all(conn, name).items() if len(records) > 1}
    if not found:
        return {}
    leaders, current = epochs.leaders(conn, found.keys()), switches.current(conn, name)
    return {
        site: (
            [
                SiteNodeState(
                    one.node,
                    one.node == leaders[site].node,
                    link_state(one.health, as_of, by),
                    one.added_at,
                    one.health,
                )
                for one in records
            ],
            leaders[site].epoch,
            current.get(site),
        )
        for site, records in found.items()
    }


def _access(conn: Connection, name: str, *, now: datetime | None) -> SiteCredentials:
    record = present(rows.get(conn, name), "site", name)
    as_of = database_time(conn, now)
    codes = rows.open_enrolments(conn, name, as_of)
    return SiteCredentials(record, nodes.of_site(conn, name), rows.tokens_of(conn, name), codes, as_of)
