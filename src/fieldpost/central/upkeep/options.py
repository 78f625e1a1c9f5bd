"""The settings of upkeep, and the rules between them."""

from dataclasses import dataclass, fields
from datetime import timedelta

from fieldpost.central.store.engine.purging import BATCH_MAX
from fieldpost.core.errors import ConfigError

TOMBSTONE_EXTRA_DAYS_MIN = 90.0
DAYS_MAX = 36525


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions:
    """[upkeep]"""

    terminal_retention_days: float = 365.0
    """How long delivered, parked and discarded notifications stay, from the time they became so; their targets and
    attempts stay as long. Pending and retrying ones are never deleted. What sites reported of cached calls stays as
    long after these came to their end."""
    tombstone_extra_days: float = TOMBSTONE_EXTRA_DAYS_MIN
    """Of a deleted notification its id and digest stay for the terminal retention and so much longer, so that a site
    restored from an old copy cannot have it sent again; at least 90."""
    audit_retention_days: float = 365.0
    """How long audit entries and the records of bulk actions stay; a notification that still has a row keeps its
    entries."""
    sample_retention_days: float = 90.0
    """How long the history of the KPIs and of the sites' health stays."""
    node_retention_days: float = 30.0
    """How long a node that is gone is still listed."""
    purge_interval_s: float = 24 * 3600.0
    """How often what was kept long enough is deleted; the first time soon after the start."""
    purge_batch: int = 500
    """How many rows one transaction of the purge deletes at most; fewer where that takes long. At most 1000."""
    sample_interval_s: float = 60.0
    """How often the KPIs are kept for their history."""
    lease_s: float = 15.0
    """How long a node leads unless it renews that; after it another node takes over purge and history."""
    renew_s: float = 5.0
    """How often the leading node renews, and another looks whether it can lead; at most a third of the lease."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise _out_of_range(field.name, "must be greater than 0")
            if value > (DAYS_MAX if field.name.endswith("_days") else DAYS_MAX * 86400):
                raise _out_of_range(field.name, "must be at most a hundred years")
        if self.tombstone_extra_days < TOMBSTONE_EXTRA_DAYS_MIN:
            raise _out_of_range("tombstone_extra_days", f"must be at least {TOMBSTONE_EXTRA_DAYS_MIN:g}")
        if self.purge_batch > BATCH_MAX:
            raise _out_of_range("purge_batch", f"must be at most {BATCH_MAX}")
        if self.lease_s < 3 * self.renew_s:
            raise _out_of_range("lease_s", f"must be at least three times upkeep.renew_s ({self.renew_s:g})")

    @property
    def terminal_retention(self) -> timedelta:
        return timedelta(days=self.terminal_retention_days)

    @property
    def tombstone_retention(self) -> timedelta:
        return timedelta(days=self.terminal_retention_days + self.tombstone_extra_days)

    @property
    def audit_retention(self) -> timedelta:
        return timedelta(days=self.audit_retention_days)

    @property
    def sample_retention(self) -> timedelta:
        return timedelta(days=self.sample_retention_days)

    @property
    def node_retention(self) -> timedelta:
        return timedelta(days=self.node_retention_days)


def _out_of_range(name: str, rule: str) -> ConfigError:
    return ConfigError("settings.range", f"upkeep.{name} {rule}", field=f"upkeep.{name}")
