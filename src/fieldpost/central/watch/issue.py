"""An issue: one finding about health. `issues.py` judges; every surface shows its list."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from fieldpost.core.quantities import number

NAMES_MAX = 4
"""How many sites one text names; it counts the others."""
SEPARATE_MAX = 3
"""Up to this number of sites with the same issue, each site gets a separate issue."""


class IssueSeverity(StrEnum):
    """The severity of an issue, the worst first."""

    CRITICAL = "critical"
    """Central itself cannot work."""
    ERROR = "error"
    """Notifications are not delivered, or will be lost sight of, until somebody acts."""
    WARNING = "warning"
    """May turn into an error."""


class IssueCode(StrEnum):
    """The stable name of each kind of issue. Those of central are the checks of a node's readiness."""

    STORE = "central.store"
    MIGRATIONS = "central.migrations"
    LOG = "central.log"
    DISPATCHER = "central.dispatcher"
    LEADER = "central.leader"
    AUDIT = "central.audit"
    NODE_LOST = "node.lost"
    SECRETS = "secrets.unreadable"
    OVERDUE = "notifications.overdue"
    PARKED = "notifications.parked"
    STUCK = "notifications.stuck"
    CHANNEL_BLOCKED = "channel.blocked"
    CHANNEL_FAILING = "channel.failing"
    CHANNEL_SETTINGS = "channel.settings"
    LIST_TARGETS = "list.targets"
    SITE_OFFLINE = "site.offline"
    SITE_LATE = "site.late"
    SITE_STOPPED = "site.stopped"
    SITE_FAILING = "site.failing"
    SITE_REJECTED = "site.rejected"
    SITE_DISK = "site.disk"
    SITE_FULL = "site.full"
    SITE_STANDBY = "site.standby"
    SITE_LAG = "site.lag"
    SITE_EPOCH_TAKEN = "site.epoch_taken"
    SITE_DEFINITIONS = "site.definitions"
    CALLS_PARKED = "calls.parked"
    RECEIVER_BLOCKED = "receiver.blocked"
    RECEIVER_TOKEN = "receiver.token"
    EVENTS_UNMATCHED = "events.unmatched"
    TEMPLATE_MISSING = "template.missing"
    OUTBOX_SILENT = "outbox.silent"


@dataclass(frozen=True, slots=True)
class Issue:
    """One finding about health."""

    code: IssueCode
    severity: IssueSeverity
    text: str
    link: str
    """The path of the console page on which to act."""
    affected: int = 0
    """How many notifications (or cached calls) it concerns."""
    subjects: int = 1
    """How many notifications, cached calls, channels, sites or nodes it is about."""


def site_path(name: str) -> str:
    """The console page of a site."""
    return f"/sites/{quote(name)}"


def few(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:NAMES_MAX])
    return f"{shown} and {number(len(names) - NAMES_MAX)} more" if len(names) > NAMES_MAX else shown
