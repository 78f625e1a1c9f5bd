"""The upkeep loops of one node."""

from dataclasses import dataclass
from pathlib import Path

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.upkeep.clock_watch import ClockWatch
from fieldpost.central.upkeep.expiry import ParkedExpiry
from fieldpost.central.upkeep.indexer import Indexer
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import Purge
from fieldpost.central.upkeep.sampler import Sampler
from fieldpost.central.upkeep.sealer import Sealer
from fieldpost.central.upkeep.session_watch import SessionWatch
from fieldpost.clock import Clock
from fieldpost.core.kpi import Thresholds
from fieldpost.core.sites.health import Freshness


@dataclass(frozen=True, slots=True)
class CentralUpkeep:
    leader: Leader
    purge: Purge
    sampler: Sampler
    indexer: Indexer
    clock_watch: ClockWatch
    session_watch: SessionWatch
    sealer: Sealer
    expiry: ParkedExpiry

    @classmethod
    def over(
        cls,
        store: Store,
        node_id: str,
        clock: Clock,
        by: Thresholds,
        options: UpkeepOptions | None = None,
        freshness: Freshness | None = None,
        keyring: Keyring | None = None,
        heads_file: Path | None = None,
        event_retention_days: float = 365.0,
        webhooks: WebhookOptions | None = None,
    ) -> "CentralUpkeep":
        retention = (options or UpkeepOptions()).audit_retention
        leader = Leader(store, node_id, clock, options)
        return cls(
            leader,
            Purge(store, clock, leader, options, event_retention_days),
            Sampler(store, clock, leader, by, options, freshness),
            Indexer(store, clock, leader),
            ClockWatch(store, clock),
            SessionWatch(store, clock, options),
            Sealer(store, clock, leader, keyring or Keyring(), retention, heads_file),
            ParkedExpiry(store, clock, leader, webhooks),
        )
