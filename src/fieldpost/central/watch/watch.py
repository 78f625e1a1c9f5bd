"""All queries, by noun."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.watch.audit import AuditReader
from fieldpost.central.watch.audit_verification import AuditVerifier
from fieldpost.central.watch.bulk_actions import BulkActionReader
from fieldpost.central.watch.cached_calls import CachedCalls
from fieldpost.central.watch.channel_checks import ChannelChecks
from fieldpost.central.watch.channels import ChannelReader
from fieldpost.central.watch.events.deliveries import DeliveryReader, as_seen
from fieldpost.central.watch.events.event_results import EventResultReader
from fieldpost.central.watch.events.events import EventReader
from fieldpost.central.watch.events.routes import RouteReader
from fieldpost.central.watch.events.subscriptions import SubscriptionReader
from fieldpost.central.watch.events.templates import WAITING_DAYS, TemplateReader
from fieldpost.central.watch.exposition import Exposition
from fieldpost.central.watch.health import HealthReader
from fieldpost.central.watch.kpis import Kpis
from fieldpost.central.watch.metrics import Metrics
from fieldpost.central.watch.nodes import Nodes
from fieldpost.central.watch.notifications import Detail, NotificationReader
from fieldpost.central.watch.overview import OverviewReader
from fieldpost.central.watch.sites import SiteReader
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor
from fieldpost.core.delivery.routing import TypeTraits
from fieldpost.core.errors import out_of_range
from fieldpost.core.kpi import SWEEPS_UNTIL_OVERDUE, Thresholds
from fieldpost.core.sites.health import Freshness
from fieldpost.core.sites.usage import SiteCeilings

SECONDS_MAX = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """[watch]"""

    stuck_after_s: float = 600.0
    """A notification pending or retrying for longer than this, since it arrived or an operator last retried it, is
    stuck; stuck ones are shown and not acted on."""
    delivered_window_s: float = 60.0
    """How far back `delivered_last_interval` counts."""
    site_late_after_s: float = 45.0
    """A site whose last report is older than this is late; a site reports every 30 s."""
    site_offline_after_s: float = 60.0
    """A site whose last report is older than this is offline; not less than `site_late_after_s`."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) <= SECONDS_MAX:
                raise out_of_range(f"watch.{field.name}", "must be greater than 0 and at most ten years")
        if self.site_offline_after_s < self.site_late_after_s:
            raise out_of_range("watch.site_offline_after_s", "must not be less than watch.site_late_after_s")

    @property
    def freshness(self) -> Freshness:
        """The limits for late and offline sites."""
        return Freshness(
            late_after=timedelta(seconds=self.site_late_after_s),
            offline_after=timedelta(seconds=self.site_offline_after_s),
        )

    def thresholds(self, sweep_interval_s: float) -> Thresholds:
        """The thresholds of the KPIs, for this interval of the dispatcher."""
        return Thresholds(
            timedelta(seconds=self.stuck_after_s),
            timedelta(seconds=SWEEPS_UNTIL_OVERDUE * sweep_interval_s),
            timedelta(seconds=self.delivered_window_s),
        )


@dataclass(frozen=True, slots=True)
class Watch:
    """The readers."""

    notifications: NotificationReader
    bulk_actions: BulkActionReader
    health: HealthReader
    kpis: Kpis
    nodes: Nodes
    sites: SiteReader
    cached_calls: CachedCalls
    channels: ChannelReader
    exposition: Exposition
    overview: OverviewReader
    audit: AuditReader
    events: EventReader
    audit_verifier: AuditVerifier
    subscriptions: SubscriptionReader
    event_results: EventResultReader
    deliveries: DeliveryReader
    routes: RouteReader
    templates: TemplateReader

    async def seen_notification(self, actor: Actor, notification_id: str) -> Detail:
        """A notification as this actor may see it. Raises NotFound, also for those of others if the actor reads only
        its own."""
        found = await self.notifications.detail(notification_id, actor.own_source, actor.owner_limit)
        body = await self.deliveries.request_body(actor, found.notification)
        return replace(found, attempts=as_seen(found.attempts, actor), request_body=body)

    @classmethod
    def over(
        cls,
        store: Store,
        clock: Clock,
        options: WatchOptions | None = None,
        keyring: Keyring | None = None,
        metrics: Metrics | None = None,
        sweep_interval_s: float = 10.0,
        audit_retention: timedelta = timedelta(days=365),
        ceilings: SiteCeilings | None = None,
        template_wait_days: float = WAITING_DAYS,
        types: Mapping[str, TypeTraits] | None = None,
        channel_checks: ChannelChecks | None = None,
    ) -> "Watch":
        """`metrics` are those of this node; without them its dispatcher is not checked."""
        options = options or WatchOptions()
        by = options.thresholds(sweep_interval_s)
        kpis, nodes, sites = Kpis(store, clock, by), Nodes(store), SiteReader(store, clock, options.freshness)
        health = HealthReader(store, clock, keyring, metrics, sweep_interval_s)
        channels = ChannelReader(store, types)
        wait = timedelta(days=template_wait_days)
        overview = OverviewReader(
            store, clock, health, kpis, nodes, sites, channels, ceilings or SiteCeilings(), wait, channel_checks
        )
        return cls(
            NotificationReader(store, clock, by, types),
            BulkActionReader(store),
            health,
            kpis,
            nodes,
            sites,
            CachedCalls(store, by.stuck_after),
            channels,
            Exposition(store, metrics or Metrics(clock), kpis, nodes, sites, overview),
            overview,
            AuditReader(store),
            EventReader(store),
            AuditVerifier(store, keyring.public_keys if keyring else (), audit_retention),
            SubscriptionReader(store),
            EventResultReader(store),
            DeliveryReader(store),
            RouteReader(store),
            TemplateReader(store, template_wait_days),
        )
