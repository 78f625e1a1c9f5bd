"""What the audit log can be narrowed by.

Nearly all entries tell of notifications that were sent and delivered; what somebody *did* is rare among them. So
whoever asks for an actor or a target, and for no kind, is asking for acts: that is what a search can answer at once
however long the log is. What was sent to a list or by a script is found among the notifications.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.search.filters import parse_range
from fieldpost.core.text import check_label
from fieldpost.core.times import to_text

W = TypeVar("W", bound=StrEnum)

FIELDS = ("from", "to", "kind", "status", "channel", "actor", "target", "site", "about")
"""What a filter is called by in queries and forms; only `kind` and `status` may be given more than once."""
MANY = ("kind", "status")

ACTS = tuple(kind for kind in AuditKind if kind not in (AuditKind.NOTIFY_SEND, AuditKind.NOTIFY_DELIVER))
"""All kinds but those that every notification leaves behind."""
ERRORS = (AuditStatus.FAILED, AuditStatus.PARKED, AuditStatus.DISCARDED)
"""What is meant by "errors only"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries are asked for; what is not given is not filtered by. Made by `parse` from what people say."""

    since: datetime | None = None
    """Happened at this moment or later."""
    until: datetime | None = None
    """Happened before this moment."""
    kinds: tuple[AuditKind, ...] = ()
    statuses: tuple[AuditStatus, ...] = ()
    channel: AuditChannel | None = None
    actor: str | None = None
    target: str | None = None
    site: str | None = None
    about: str | None = None
    """The id of a notification, a cached call or a bulk action."""

    @property
    def judged_kinds(self) -> tuple[AuditKind, ...]:
        """The kinds that fit, acts alone where who acted, or on what, was asked for; none for all."""
        is_of_notifications = self.channel in (None, AuditChannel.NOTIFICATION)
        if self.kinds or (self.actor is None and self.target is None and is_of_notifications):
            return self.kinds
        return ACTS

    def fits(self, entry: AuditEntry) -> bool:
        """Whether this entry is asked for: what the SQL must agree with."""
        kinds = self.judged_kinds
        return (
            (self.since is None or entry.occurred_at >= self.since)
            and (self.until is None or entry.occurred_at < self.until)
            and (not kinds or entry.kind in kinds)
            and (not self.statuses or entry.status in self.statuses)
            and (self.channel is None or entry.channel is self.channel)
            and (self.actor is None or entry.actor == self.actor)
            and (self.target is None or entry.target == self.target)
            and (self.site is None or entry.source_site_id == self.site)
            and (self.about is None or self._is_about(entry))
        )

    def fields(self) -> dict[str, str | list[str]]:
        """What was given, by the names in FIELDS; `parse` makes the same filter of it."""
        given: dict[str, str | list[str] | None] = {
            "from": to_text(self.since) if self.since else None,
            "to": to_text(self.until) if self.until else None,
            "kind": [kind.value for kind in self.kinds] or None,
            "status": [status.value for status in self.statuses] or None,
            "channel": self.channel.value if self.channel else None,
            "actor": self.actor,
            "target": self.target,
            "site": self.site,
            "about": self.about,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _is_about(self, entry: AuditEntry) -> bool:
        """An act on a call or by a bulk action has the id for its target."""
        return entry.correlation_id == self.about or (entry.kind in ACTS and entry.target == self.about)


def parse(given: Mapping[str, str | Sequence[str]]) -> AuditFilter:
    """The filter that these fields say, or InvalidInput naming the field that says none."""
    for name in given:
        if name not in FIELDS:
            raise InvalidInput("filter.unknown", f"there is no filter {name[:64]!r}", field=name[:64])
        if name not in MANY and not isinstance(given[name], str):
            raise InvalidInput("filter.one", f"{name} takes one value", field=name)
    one = {name: value for name, value in given.items() if isinstance(value, str)}
    since, until = parse_range(one)
    return AuditFilter(
        since=since,
        until=until,
        kinds=_words(AuditKind, given, "kind"),
        statuses=_words(AuditStatus, given, "status"),
        channel=_word(AuditChannel, one["channel"], "channel") if "channel" in one else None,
        actor=check_label(one["actor"], "actor") if "actor" in one else None,
        target=check_label(one["target"], "target") if "target" in one else None,
        site=check_label(one["site"], "site") if "site" in one else None,
        about=_id(one["about"]) if "about" in one else None,
    )


def _words(kind: type[W], given: Mapping[str, str | Sequence[str]], field: str) -> tuple[W, ...]:
    asked = given.get(field, ())
    return tuple(dict.fromkeys(_word(kind, text, field) for text in ([asked] if isinstance(asked, str) else asked)))


def _word(kind: type[W], text: str, field: str) -> W:
    try:
        return kind(text)
    except ValueError:
        raise InvalidInput(
            "filter.word", f"{field} must be one of {', '.join(kind)}, not {text[:64]!r}", field=field
        ) from None


def _id(text: str) -> str:
    if not is_id(text):
        raise InvalidInput(
            "filter.id",
            "about must be the id of a notification, a cached call or a bulk action",
            field="about",
            hint="36 characters, as the lists show it",
        )
    return text
