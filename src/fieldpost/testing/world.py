"""The fake service behind an adapter in its contract tests: its behaviour, its record and its secrets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.ids import NotificationId
from fieldpost.core.secret import Secret

Behaviour = Literal["accepts", "refuses", "later", "away", "hangs", "silent", "repeats"]
"""The behaviour of the service: *accepts*; *refuses* the message permanently; asks to try *later*; is *away* (refuses
connections); *hangs* before it has the message; accepts it but stays *silent*; or refuses and *repeats* everything it
received, including secrets."""

BEHAVIOURS: tuple[Behaviour, ...] = ("accepts", "refuses", "later", "away", "hangs", "silent", "repeats")

NASTY = (
    "",
    " ",
    "\0",
    "\r\n",
    "\n.\n",
    "\u202e",
    "\ud800",
    "<script>",
    "a" * 5000,
    "ä" * 300,
    "%s{0}",
    "../..",
    "\x1b[2J",
)
"""Hostile targets: each must be rejected or stored in one printable form."""


@dataclass(frozen=True, slots=True)
class World:
    """The fake service of one test, listening on loopback."""

    settings: Mapping[str, object]
    """Settings of a channel to this service, with secrets as `Secret`; the secrets must not leak anywhere."""
    targets: tuple[str, ...]
    """At least two."""
    copies: Callable[[], Sequence[tuple[str, str]]]
    """The copies received so far: target, and the id by which duplicates are recognised."""
    many: tuple[str, ...] = ()
    """More targets than the adapter sends to at once, if it sends to several at once."""

    @property
    def canaries(self) -> list[str]:
        """The secrets in plain text."""
        return [value.reveal() for value in self.settings.values() if isinstance(value, Secret)]


def envelope(world: World, **changes: Any) -> Envelope:
    """An envelope to all targets of this world."""
    fields: dict[str, Any] = {
        "notification_id": NotificationId("0198c8a0-0000-7000-8000-000000000001"),
        "list_name": "operators",
        "subject": "Pump 3 läuft heiß",
        "body": "It has 93 °C.\n.\nCall somebody.\n",
        "targets": world.targets,
        "settings": world.settings,
        "dated": datetime(2026, 11, 15, 8, 0, tzinfo=UTC),
        "gate": lambda: None,
    }
    return Envelope(**fields | changes)
