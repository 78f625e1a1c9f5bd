"""The other side of an adapter in its contract: how it behaves, what it is told and what must never be told of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from fieldpost.core.adapter import Envelope
from fieldpost.core.ids import NotificationId
from fieldpost.core.secret import Secret

Behaviour = Literal["accepts", "refuses", "later", "away", "hangs", "silent", "repeats"]
"""How the other side behaves: it *accepts*; *refuses* this message for good; asks to come *later*; is *away*, so that
nobody answers a connection; *hangs* before it could have taken the message; takes it and stays *silent*; or refuses and
*repeats* all that it was told, secrets included."""

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
"""Texts that come as targets all the same: each is refused, or kept in one form that can be shown."""


@dataclass(frozen=True, slots=True)
class World:
    """The other side of one test, listening on loopback."""

    settings: Mapping[str, object]
    """Of a channel that leads there, secrets as `Secret`; each of them is a canary that must be seen nowhere."""
    targets: tuple[str, ...]
    """At least two."""
    copies: Callable[[], Sequence[tuple[str, str]]]
    """What arrived so far: for each copy the target, and the id by which a second copy is recognised as one."""

    @property
    def canaries(self) -> list[str]:
        """Its secrets as they are."""
        return [value.reveal() for value in self.settings.values() if isinstance(value, Secret)]


def envelope(world: World, **changes: Any) -> Envelope:
    """To all targets of this world."""
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
