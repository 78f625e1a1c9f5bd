"""The adapter protocol: delivery as a function from an envelope to an outcome.

An adapter returns an outcome for every external failure. An exception is a bug and parks the notification that caused
it; cancellation passes through. No state kept between calls changes an outcome.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

from fieldpost.core.delivery.outcome import Outcome
from fieldpost.core.delivery.rate import Rate
from fieldpost.core.events.event import RecordedEvent
from fieldpost.core.frozen import frozen
from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import Provenance, Severity, Target
from fieldpost.core.secret import Secret


class ClaimLost(Exception):
    """Raised by an envelope's callbacks: another node may have claimed the row, so nothing more may be sent."""


async def record_nothing(_targets: Sequence[Target]) -> None:
    """For envelopes without a stored notification."""


def note_nothing(_address: str, _moved_to: str) -> None:
    """For envelopes without a stored notification."""


@frozen(kw_only=True)
class Envelope:
    """One attempt, as handed to an adapter."""

    notification_id: NotificationId
    list_name: str
    subject: str
    body: str
    targets: tuple[str, ...]
    """The targets that are still due; never those already delivered."""
    settings: Mapping[str, object]
    """The channel's settings. Settings that the adapter declares as secrets are of type `Secret`."""
    dated: datetime
    """The same in every attempt, so that receivers can recognise duplicates."""
    gate: Callable[[], None]
    """Call it right before the point of no return. Raises ClaimLost if the claim may have expired."""
    record_reached: Callable[[Sequence[Target]], Awaitable[None]] = record_nothing
    """Await it with the targets just reached, as the outcome will name them (delivered or accepted), before you send to
    others: if this node then dies, they get no second copy. Not needed after the last. Raises ClaimLost if another node
    has the notification."""
    note_moved: Callable[[str, str], None] = note_nothing
    """Call it with a target and its new address if the provider has moved it: Health names it until the list has
    another target instead."""
    event: RecordedEvent | None = None
    """The event that caused the notification; None for a notification to a list."""
    provenance: Provenance | None = None
    """The site, instance and script that sent the notification."""
    severity: Severity | None = None
    """The notification's severity, else the default of its list."""
    incident: str | None = None
    """The subject of the alarm: equal for the notifications that raise and clear it."""
    is_cleared: bool = False
    """Whether the notification reports that its incident is over."""
    link: str | None = None
    """The URL of the notification's page; None without `front.public_url`."""
    target_secrets: Mapping[str, Secret] = field(default_factory=dict)
    """The secret of each due target, for adapters with `SecretTargets`. A target without one never gets here."""
    receipt_urls: Mapping[str, str] = field(default_factory=dict)
    """The URL for the provider's receipts on each due target; empty without `front.public_url`."""
    transcript: Callable[[str], None] | None = None
    """Set while an administrator tests a channel: receives each line sent (`> EHLO …`) and received (`< 250 …`),
    without secrets."""


class Adapter(Protocol):
    """Delivery over one kind of channel. Installed adapters register in the entry point group `fieldpost.adapters`."""

    type: str
    deadline_s: float
    """The time limit of a whole attempt. The caller enforces it."""
    secrets: frozenset[str]
    """Names of secret settings: stored encrypted, never shown, and passed to every method as `Secret`."""

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Return a channel's settings with defaults filled in, or raise InvalidInput naming the field."""

    def check_target(self, address: str) -> str:
        """Return the target in its canonical form, or raise InvalidInput."""

    def target_key(self, address: str) -> str:
        """A key that is equal for different spellings of one recipient, so that they get one copy."""

    async def deliver(self, envelope: Envelope) -> Outcome:
        """Make one attempt to all targets of the envelope."""

    async def close(self) -> None:
        """Close open connections."""


@runtime_checkable
class SettingsWarner(Protocol):
    """An adapter that also warns about settings that are valid but probably a mistake."""

    def warnings(self, settings: Mapping[str, object]) -> list[str]:
        """One sentence per warning, for the administrator. The settings passed in exclude secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingField:
    """A form field for one setting. Only `check_settings` validates values."""

    name: str
    doc: str
    """A short description."""
    kind: Literal["text", "whole", "number", "choice"] = "text"
    choices: tuple[str, ...] = ()
    default: str = ""
    """The value used if the field is left empty, worded for people; empty for required fields."""
    is_required: bool = False
    is_advanced: bool = False
    """Whether most channels keep the default."""
    is_destination: bool = False
    """Whether secrets are sent to the host, or as the user, in this setting: a change requires them again."""
    is_never_sent: bool = False
    """For a secret that only signs: it is never sent, so it is kept when a host changes."""
    setting: str = ""
    """If given, the form shows the field only when this setting has one of `values`."""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptPhase:
    """A step of an attempt; outcomes name it in `phase`."""

    name: str
    title: str
    advice: str
    """What to do if an attempt fails in this phase."""
    setting: str = ""
    """If given, the phase occurs only when this setting has one of `values`."""
    values: tuple[str, ...] = ()


@runtime_checkable
class Described(Protocol):
    """An adapter that describes its settings, so that a form can be generated for its channels."""

    fields: Sequence[SettingField]
    """All settings including secrets, in the order of the form."""
    phases: Sequence[AttemptPhase]
    """In the order of a successful attempt."""
    guide: str
    """Set-up guide for administrators, in Markdown."""


@runtime_checkable
class HostChecker(Protocol):
    """An adapter that can check the host names in its settings."""

    async def check_hosts(self, settings: Mapping[str, object]) -> None:
        """Raise InvalidInput, naming the field, if a host does not exist or is not allowed. A name that cannot be
        resolved at the moment passes: this checks the name, not the network."""


@runtime_checkable
class SecretTargets(Protocol):
    """An adapter whose targets are labels with a secret each: a hook URL, a routing key.

    `check_target` checks the label; rows, errors and pages show it. The secret is in `Envelope.target_secrets`.
    """

    target_secret_name: str
    """The name of the secret in forms and sentences: `hook URL`."""
    has_own_urls: bool
    """Whether each secret is a separate URL: then each list has a breaker, else the channel has one."""

    def check_target_secret(self, secret: Secret) -> Secret:
        """Return the secret in its canonical form, or raise InvalidInput without repeating it."""


@runtime_checkable
class TargetWarner(Protocol):
    """An adapter that also warns about secrets of targets that are valid but probably a mistake."""

    def target_warnings(self, secret: Secret) -> list[str]:
        """One text per warning, without the secret."""


@runtime_checkable
class TextCosts(Protocol):
    """An adapter for providers that bill by the length of a text."""

    def text_cost(self, envelope: Envelope) -> str:
        """The cost of the envelope's text for each target, for its author: `2 segments`. The settings lack secrets, and
        are empty if there is no channel."""


@runtime_checkable
class CallbackReceipts(Protocol):
    """An adapter for providers that report on accepted targets by calling central."""

    def needs_callbacks(self, settings: Mapping[str, object]) -> bool:
        """Whether receipts come by callbacks only."""


@runtime_checkable
class RateDefaults(Protocol):
    """An adapter for providers that limit the number of requests. Channels and lists may set other rates."""

    channel_rate: Rate | None
    """The default rate of a channel."""
    list_rate: Rate | None
    """The default rate of a list."""
