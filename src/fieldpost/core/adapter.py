"""What an adapter is: a function from an envelope to an outcome.

An adapter returns an outcome for whatever the world does to it. What it raises is a bug and parks the one notification
it happened to; cancellation passes through. It keeps nothing between calls that changes an outcome.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

from fieldpost.core.ids import NotificationId
from fieldpost.core.outcome import Outcome


class ClaimLost(Exception):
    """Raised by an envelope's gate: another node may have taken the row, so nothing more may be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One attempt, as handed to an adapter."""

    notification_id: NotificationId
    list_name: str
    subject: str
    body: str
    targets: tuple[str, ...]
    """Those still owed a copy; never those already reached."""
    settings: Mapping[str, object]
    """The channel's settings; those that its adapter declares as secrets are of type `Secret`."""
    dated: datetime
    """The same at every attempt, so that copies can be recognised as copies."""
    gate: Callable[[], None]
    """To be called right before the point of no return; raises ClaimLost when the claim may have run out."""
    transcript: Callable[[str], None] | None = None
    """Given when an administrator tests a channel: to be told each line said to the other side (`> EHLO …`) and heard
    from it (`< 250 …`), without secrets."""


class Adapter(Protocol):
    """The ways out implement this; found by the entry point group `fieldpost.adapters`."""

    type: str
    deadline_s: float
    """The longest an attempt may take in all; whoever calls enforces it."""
    secrets: frozenset[str]
    """Which of its settings are secret: kept encrypted, never shown, and handed over as `Secret`, to every method."""

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        """The settings of a channel in full, or InvalidInput naming the field."""

    def check_target(self, address: str) -> str:
        """The target in the one form it is kept in, or InvalidInput."""

    def target_key(self, address: str) -> str:
        """The same for two targets that are one addressee in different spellings, so that he gets one copy."""

    async def deliver(self, envelope: Envelope) -> Outcome:
        """One attempt to all targets of the envelope."""

    async def close(self) -> None:
        """Give back what is held open."""


@runtime_checkable
class WarnsAboutSettings(Protocol):
    """An adapter that also knows settings which are lawful and yet probably not meant."""

    def warnings(self, settings: Mapping[str, object]) -> list[str]:
        """A sentence for each, to be shown to whoever sets the channel up. Secrets are not among the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingField:
    """One setting as a form shows it. What it may be is judged by `check_settings` alone."""

    name: str
    doc: str
    """What it means, in a few words."""
    kind: Literal["text", "whole", "number", "choice"] = "text"
    choices: tuple[str, ...] = ()
    default: str = ""
    """What is taken when it is left empty, as a person would say it; none for what must be given."""
    is_required: bool = False
    is_advanced: bool = False
    """Whether most people leave it as it is."""


@dataclass(frozen=True, slots=True)
class AttemptPhase:
    """A step of an attempt, by the word that outcomes have in `phase`."""

    name: str
    title: str
    advice: str
    """What to do when it fails there."""
    setting: str = ""
    """It is gone through only where this setting says one of `values`; else always."""
    values: tuple[str, ...] = ()


@runtime_checkable
class Described(Protocol):
    """An adapter that says what a channel of its type can be told, so that people get fields for it."""

    fields: Sequence[SettingField]
    """All its settings, secrets included, in the order in which one fills them in."""
    phases: Sequence[AttemptPhase]
    """In the order of an attempt that goes well."""
    guide: str
    """For people, in Markdown."""


@runtime_checkable
class ChecksHosts(Protocol):
    """An adapter whose settings name hosts, and that can say whether there are such hosts."""

    async def check_hosts(self, settings: Mapping[str, object]) -> None:
        """Raises InvalidInput naming the field whose host does not exist, or may not be reached. A name that cannot be
        looked up now passes: it is the name that is judged, not the network."""
