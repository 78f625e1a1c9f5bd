"""The fake service behind an adapter in its contract tests: its behaviour, its record and its secrets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.ids import NotificationId
from fieldpost.core.secret import Secret

Behaviour = Literal["accepts", "refuses", "later", "away", "hangs", "silent", "repeats", "too_many", "fails_later"]
"""The behaviour of the service: *accepts*; *refuses* the message permanently; asks to try *later*; is *away* (refuses
connections); *hangs* before it has the message; accepts it but stays *silent*; or refuses and *repeats* everything it
received, including secrets. For providers with limits it answers with *too many* requests; for those with receipts it
accepts the message and reports, when it is asked, that it *fails later*."""

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


HOSTILE_TEXTS = (
    "*bold* _it_ ~gone~ `code` ```block``` ||spoiler||",
    "<b>bold</b> <script>alert(1)</script> &amp; &lt; &",
    "<!channel> <!here> <@U012AB3CD> @everyone @channel",
    "[text](https://evil.example) <https://evil.example|text> https://evil.example/?a=1&b=2",
    "> quote # head - item 1. item --- +++",
    "{{ 7 * 7 }} ${7*7} %s %(x)s {0} $(id) `id`",
    '\\n \\u0041 \\ " \' \\"',
    "Ünïcödé ß 漢字 مرحبا",
    "👩\u200d👩\u200d👧 🇩🇪 👍🏽",
)
"""Texts that markup, templates or shells would interpret: they must arrive character for character."""


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

    target_secrets: Mapping[str, Secret] = field(default_factory=dict)
    """The secret of each target, for adapters with `SecretTargets`."""

    texts: Callable[[], Sequence[str]] | None = None
    """The texts of the copies as their receivers read them, in order; None if the fake does not know."""

    @property
    def canaries(self) -> list[str]:
        """The secrets in plain text."""
        return [
            value.reveal()
            for value in (*self.settings.values(), *self.target_secrets.values())
            if isinstance(value, Secret)
        ]


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
        "target_secrets": world.target_secrets,
    }
    return Envelope(**fields | changes)
