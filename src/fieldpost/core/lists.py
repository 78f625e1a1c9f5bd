"""Lists and channels, and the differences between two lists."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from fieldpost.core.delivery.rate import Rate
from fieldpost.core.delivery.receipt import RECEIPT_WAIT_S_DEFAULT, ReceiptMissing
from fieldpost.core.delivery.retry import ATTEMPTS_MAX_DEFAULT, RETRY_DELAY_S_DEFAULT, RetryPolicy
from fieldpost.core.notification import Severity

UNRESOLVED_TYPE = "unresolved"
"""The type of a notification whose list does not exist. Delivery parks it, naming the list; a retry looks again."""

LISTS_TYPE = "lists"
"""The type of a list whose targets are the names of other lists."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A configured adapter: type, settings and secrets, and the retry policy of its lists."""

    name: str
    type: str
    settings: Mapping[str, object]
    is_default: bool = False
    version: int = 1
    retry: RetryPolicy | None = None
    """None for a fixed policy from `max_retries` and `retry_delay_s`."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Encrypted values by setting name; only the adapter gets the plain text."""
    max_retries: int = ATTEMPTS_MAX_DEFAULT
    """How many attempts are made in total before a notification is parked."""
    retry_delay_s: float = RETRY_DELAY_S_DEFAULT
    rate: Rate | None = None
    """How many deliveries of all its lists may start per period; None for the default of the type."""
    receipt_wait_s: float = RECEIPT_WAIT_S_DEFAULT
    """How long to wait for the receipt of an accepted target."""
    receipt_missing: ReceiptMissing = ReceiptMissing.DELIVERED
    """Its result without a receipt."""


@dataclass(frozen=True, slots=True)
class NotificationList:
    """A named set of targets of one type; the type is fixed at creation."""

    name: str
    type: str
    channel_name: str | None = None
    targets: tuple[str, ...] = ()
    park_uncertain: bool = False
    version: int = 1
    retry: RetryPolicy | None = None
    """None for the channel's policy."""
    allowed_sites: tuple[str, ...] | None = None
    """The sites that may send to this list; None for all."""
    severity: Severity | None = None
    """Of notifications that have none."""
    rate: Rate | None = None
    """How many deliveries may start per period; None for the default of the type."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Encrypted secrets of targets, by address; only the adapter gets the plain text."""


@dataclass(frozen=True, slots=True)
class ListChange:
    """The difference between two versions of a list."""

    name: str
    is_new: bool
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    """Names of changed properties: channel, park_uncertain, retry, allowed_sites, severity, rate, secrets."""

    @property
    def is_empty(self) -> bool:
        return not (self.is_new or self.added or self.removed or self.properties)


def compare(before: NotificationList | None, after: NotificationList) -> ListChange:
    """The changes that turn `before` into `after`."""
    if before is None:
        return ListChange(after.name, True, after.targets)
    properties = {
        "channel": before.channel_name != after.channel_name,
        "park_uncertain": before.park_uncertain != after.park_uncertain,
        "retry": before.retry != after.retry,
        "allowed_sites": before.allowed_sites != after.allowed_sites,
        "severity": before.severity != after.severity,
        "rate": before.rate != after.rate,
        "secrets": before.secrets != after.secrets,
    }
    return ListChange(
        after.name,
        False,
        _without(after.targets, before.targets),
        _without(before.targets, after.targets),
        tuple(name for name, differs in properties.items() if differs),
    )


def plan_mark(changes: Iterable[ListChange]) -> str:
    """A digest of the changes of an import, by which a plan can be confirmed before it is applied."""
    return sha256("\n".join(map(repr, changes)).encode()).hexdigest()


def _without(targets: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    left_out = set(others)
    return tuple(target for target in targets if target not in left_out)
