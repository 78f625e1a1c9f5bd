"""Settings of upkeep and the rules between them."""

from dataclasses import dataclass, fields
from datetime import timedelta

from fieldpost.central.store.engine.purging import BATCH_MAX
from fieldpost.core.errors import out_of_range

TOMBSTONE_EXTRA_DAYS_MIN = 90.0
DAYS_MAX = 36525


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions:
    """[upkeep]"""

    terminal_retention_days: float = 365.0
    """How long delivered, parked and discarded notifications are kept, with their targets and attempts, counted from
    their last change of status. Pending and retrying ones are never deleted. Also applies to finished cached calls in
    the mirror."""
    tombstone_extra_days: float = TOMBSTONE_EXTRA_DAYS_MIN
    """How much longer than terminal_retention_days the id and digest of a deleted notification are kept, so that a site
    restored from an old backup cannot send it again; at least 90. They are kept for audit_retention_days if that is
    longer."""
    audit_retention_days: float = 365.0
    """How long audit entries and bulk actions are kept; entries of an existing notification are never deleted."""
    sample_retention_days: float = 90.0
    """How long the history of KPIs and of site health is kept."""
    node_retention_days: float = 30.0
    """How long a stopped node is still listed."""
    purge_interval_s: float = 24 * 3600.0
    """Interval between purges; the first one runs soon after the start."""
    purge_batch: int = 500
    """Maximum number of rows deleted per transaction of the purge, at most 1000; slow batches are made smaller."""
    sample_interval_s: float = 60.0
    """Interval between KPI samples."""
    lease_s: float = 15.0
    """How long a node leads without renewal; then another node takes over purge and history."""
    renew_s: float = 5.0
    """Interval at which the leader renews its lease and other nodes try to take it; at most a third of the lease. Nodes
    also end database sessions of frozen nodes at this interval."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise out_of_range(f"upkeep.{field.name}", "must be greater than 0")
            if value > (DAYS_MAX if field.name.endswith("_days") else DAYS_MAX * 86400):
                raise out_of_range(f"upkeep.{field.name}", "must be at most a hundred years")
        if self.tombstone_extra_days < TOMBSTONE_EXTRA_DAYS_MIN:
            raise out_of_range("upkeep.tombstone_extra_days", f"must be at least {TOMBSTONE_EXTRA_DAYS_MIN:g}")
        if self.purge_batch > BATCH_MAX:
            raise out_of_range("upkeep.purge_batch", f"must be at most {BATCH_MAX}")
        if self.lease_s < 3 * self.renew_s:
            raise out_of_range("upkeep.lease_s", f"must be at least three times upkeep.renew_s ({self.renew_s:g})")

    @property
    def audit_retention(self) -> timedelta:
        return timedelta(days=self.audit_retention_days)

    @property
    def tombstone_retention_days(self) -> float:
        return max(self.terminal_retention_days + self.tombstone_extra_days, self.audit_retention_days)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """[audit]"""

    heads_file: str = ""
    """The file to which the number, head and time of each sealed batch of audit entries are appended; empty for
    `audit-heads` in central's folder. Copy it to another machine: with it, `fieldpost audit verify` also finds a
    database that was replaced by an older copy."""
