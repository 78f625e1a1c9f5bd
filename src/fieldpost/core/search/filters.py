"""Filters of lists, declared once per noun.

A `FilterField` describes one filter: its name, kind, help and choices. Query parameters and their OpenAPI description,
options of the command line and fields of console forms derive from these declarations. `read_filters` converts given
texts to values; the filter types (`Filter`, `AuditFilter`, `CallFilter`) are built from them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, Self, get_args

from fieldpost.core.alarm import INCIDENT_BYTES_MAX
from fieldpost.core.audit import AuditChannel, AuditKind, AuditStatus
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.subscription import SubscriptionState
from fieldpost.core.ids import is_id
from fieldpost.core.notification import NotificationKind, Severity, Status
from fieldpost.core.search.fingerprint import is_fingerprint_key
from fieldpost.core.search.tokens import TOKENS_MAX, tokenize
from fieldpost.core.sites.health import SiteCondition
from fieldpost.core.sites.intent import IntentState
from fieldpost.core.sites.message import CallStatus, Category
from fieldpost.core.sites.site_event import EventSeverity, SiteEventKind
from fieldpost.core.text import LABEL_BYTES_MAX, check_label, check_subject
from fieldpost.core.times import from_text, to_text

GivenFilters = Mapping[str, str | Sequence[str]]
"""Filter values as text, by field name; only a repeatable field takes several."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|\+00:00)", re.ASCII)


class FilterKind(StrEnum):
    """How the value of a filter is written and checked."""

    TEXT = "text"
    """A name, compared as a whole."""
    CHOICE = "choice"
    """One of the field's choices."""
    TIME = "time"
    """An RFC 3339 time in UTC."""
    FLAG = "flag"
    """`true` or `false`."""
    WORDS = "words"
    """Up to 16 words, all of which must occur."""
    ID = "id"
    """A UUID."""
    ERROR_GROUP = "error_group"
    """The key of a group of equal errors."""


@dataclass(frozen=True, slots=True)
class FilterField:
    """One filter of a list."""

    name: str
    """Its name in queries, forms, options and stored bulk actions."""
    kind: FilterKind
    help: str
    """One phrase, without a period."""
    attribute: str = ""
    """The attribute of the filter type that holds the value; the name unless given."""
    choices: tuple[str, ...] = ()
    is_repeatable: bool = False
    label: str = ""
    """The label in a form; the name with a capital unless given."""
    placeholder: str = "all"
    """An example or a rule, shown in an empty input."""
    bytes_max: int = LABEL_BYTES_MAX
    """Of a text."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attribute", self.attribute or self.name)
        object.__setattr__(self, "label", self.label or self.name.capitalize())
        if self.kind is FilterKind.WORDS:
            object.__setattr__(self, "placeholder", "whole words")


def _range(noun: str, label: str = "From") -> tuple[FilterField, FilterField]:
    return (
        FilterField("from", FilterKind.TIME, f"{noun} at or after this time (UTC)", "since", label=label),
        FilterField("to", FilterKind.TIME, f"{noun} before this time (UTC)", "until"),
    )


def _choice(name: str, choices: Sequence[str], help: str, attribute: str = "", *, many: bool = False) -> FilterField:
    return FilterField(name, FilterKind.CHOICE, help, attribute, tuple(choices), many)


NOTIFICATION_FILTERS = (
    _choice("status", tuple(Status), "Only notifications in this status", "statuses", many=True),
    _choice("kind", tuple(NotificationKind), "Only notifications to lists, or only webhooks"),
    FilterField("type", FilterKind.TEXT, "Only notifications of this channel type"),
    FilterField("site", FilterKind.TEXT, "Only notifications from this site or application"),
    FilterField(
        "list", FilterKind.TEXT, "Only notifications to this list, also as parts of a list of lists", "list_name"
    ),
    FilterField(
        "subscription",
        FilterKind.ID,
        "Only notifications to this subscription, by its id",
        "subscription_id",
        placeholder="id",
    ),
    FilterField("event", FilterKind.ID, "Only notifications of this event, by its id", "event_id", placeholder="id"),
    _choice("severity", tuple(Severity), "Only notifications of this severity", "severities", many=True),
    FilterField("incident", FilterKind.TEXT, "Only notifications about this incident", bytes_max=INCIDENT_BYTES_MAX),
    *_range("Only notifications that arrived", "Arrived from"),
    FilterField("stuck", FilterKind.FLAG, "Only stuck notifications", "is_stuck"),
    FilterField("overdue", FilterKind.FLAG, "Only overdue notifications", "is_overdue"),
    FilterField(
        "subject", FilterKind.WORDS, "Words that must all occur in the subject; leaves out notifications of events"
    ),
    FilterField(
        "error", FilterKind.ERROR_GROUP, "Only this group of equal errors, by its key", "error_key", label="Error group"
    ),
)

DELIVERY_FILTERS = tuple(field for field in NOTIFICATION_FILTERS if field.name in ("status", "event", "from", "to"))
"""Filters of the delivery log of a subscription."""

AUDIT_FILTERS = (
    *_range("Only entries"),
    _choice("kind", tuple(AuditKind), "Only entries of this kind", "kinds", many=True),
    _choice("status", tuple(AuditStatus), "Only entries with this status", "statuses", many=True),
    _choice("channel", tuple(AuditChannel), "Only entries of this channel"),
    FilterField("actor", FilterKind.TEXT, "Only actions of this user or program"),
    FilterField(
        "target", FilterKind.TEXT, "Only actions on this list, channel, site or user", placeholder="list, channel …"
    ),
    FilterField("site", FilterKind.TEXT, "Only entries about this site or application"),
    FilterField(
        "about",
        FilterKind.ID,
        "Only entries about this notification, cached call or bulk action",
        label="Notification or call",
        placeholder="id",
    ),
)

CALL_FILTERS = (
    FilterField("site", FilterKind.TEXT, "Only calls of this site"),
    _choice("category", [category for category in Category if category.is_tracked], "Only calls of this category"),
    _choice("status", tuple(CallStatus), "Only calls in this status", "statuses", many=True),
    *_range("Only calls that central first saw", "First reported from"),
    FilterField("target", FilterKind.WORDS, "Words that must all occur in the target"),
    FilterField("stuck", FilterKind.FLAG, "Only calls that are pending or retrying for too long", "is_stuck"),
)

EVENT_FILTERS = (
    FilterField("topic", FilterKind.TEXT, "Only events of this topic"),
    FilterField(
        "source",
        FilterKind.TEXT,
        "Only events of this publisher, as app:NAME",
        label="Publisher",
        placeholder="app:NAME",
    ),
    FilterField("resource", FilterKind.TEXT, "Only events about this resource"),
    FilterField(
        "correlation", FilterKind.TEXT, "Only events with this correlation id", "correlation_id", label="Correlation id"
    ),
    *_range("Only events that were recorded", "Recorded from"),
)

SUBSCRIPTION_FILTERS = (
    FilterField("owner", FilterKind.TEXT, "Only subscriptions of this owner"),
    _choice(
        "state",
        tuple(SubscriptionState),
        "Only subscriptions in this state; all but removed ones unless given",
        "states",
        many=True,
    ),
)

SITE_FILTERS = (
    _choice("state", ("issues", *SiteCondition, "waiting", "parked", "rejected"), "Only sites in this state"),
    FilterField("name", FilterKind.TEXT, "Words that must all occur in the name", placeholder="any part"),
)

SITE_EVENT_FILTERS = (
    _choice("kind", tuple(SiteEventKind), "Only entries of this kind"),
    _choice("severity", get_args(EventSeverity), "Only entries of this severity"),
    _choice("category", tuple(Category), "Only entries about this category of messages"),
    FilterField(
        "message_id",
        FilterKind.TEXT,
        "Only entries about this notification or call",
        label="Notification or call",
        placeholder="id",
    ),
    FilterField("target", FilterKind.TEXT, "Only entries about this external system or connection"),
    FilterField("instance", FilterKind.TEXT, "Only entries about this machine or unit"),
    FilterField("script", FilterKind.TEXT, "Only entries about messages of this script"),
    *_range("Only entries"),
    FilterField("words", FilterKind.WORDS, "Words that must all occur in the text"),
)
"""Filters of a site's event log, at the site and from central."""

INTENT_FILTERS = (
    FilterField("site", FilterKind.TEXT, "Only intents for this site"),
    _choice("state", tuple(IntentState), "Only intents in this state", "states", many=True),
)


def read_filters(declared: Sequence[FilterField], given: GivenFilters) -> dict[str, Any]:
    """Convert given texts to values by attribute: times to datetimes, flags to booleans, repeatable fields to tuples.

    Raises InvalidInput naming the first unknown or invalid field.
    """
    fields = {field.name: field for field in declared}
    values: dict[str, Any] = {}
    for name, value in given.items():
        field = fields.get(name)
        if field is None:
            raise InvalidInput("filter.unknown", f"unknown filter {name[:64]!r}", field=name[:64])
        if field.is_repeatable:
            texts = [value] if isinstance(value, str) else value
            values[field.attribute] = tuple(dict.fromkeys(_read(field, text) for text in texts))
        elif isinstance(value, str):
            values[field.attribute] = _read(field, value)
        else:
            raise InvalidInput("filter.one", f"{name} takes one value", field=name)
    since, until = values.get("since"), values.get("until")
    if since is not None and until is not None and since > until:
        begin, end = (next(one.name for one in declared if one.attribute == name) for name in ("since", "until"))
        raise InvalidInput("filter.range", f"{begin} must not be later than {end}", field=begin)
    return values


def write_filters(declared: Sequence[FilterField], wanted: object) -> dict[str, str | list[str]]:
    """The fields of a filter that are set, as text: the inverse of `read_filters`."""
    texts: dict[str, str | list[str]] = {}
    for field in declared:
        match getattr(wanted, field.attribute):
            case None | False | ():
                continue
            case True:
                texts[field.name] = "true"
            case datetime() as time:
                texts[field.name] = to_text(time)
            case tuple() as values:
                texts[field.name] = [str(value) for value in values]
            case value:
                texts[field.name] = str(value)
    return texts


class TextFilter:
    """Base of the filter types: dataclasses with the attributes that `declared` names."""

    __slots__ = ()
    declared: ClassVar[Sequence[FilterField]]

    @classmethod
    def parse(cls, given: GivenFilters) -> Self:
        """Build the filter from field texts, or raise InvalidInput naming the field."""
        return cls(**read_filters(cls.declared, given))

    def fields(self) -> dict[str, str | list[str]]:
        """The fields that are set, as text; `parse` reads them back."""
        return write_filters(self.declared, self)


def parse_moment(text: str, field: str) -> datetime:
    """Parse a time in UTC, or raise InvalidInput naming the field."""
    moment = from_text(text) if _TIME.fullmatch(text) else None
    if moment is None:
        raise InvalidInput(
            "filter.time",
            f"{field} must be a time in UTC, not {text[:64]!r}",
            field=field,
            hint="write it as 2026-11-15T08:00:00Z",
        )
    # Stored times are microseconds since 1970; an earlier bound means the same as 1970.
    return max(moment, datetime(1970, 1, 1, tzinfo=UTC))


def _read(field: FilterField, text: str) -> Any:
    name = field.name
    match field.kind:
        case FilterKind.TEXT:
            return check_label(text, name, field.bytes_max)
        case FilterKind.CHOICE:
            return _read_choice(field, text)
        case FilterKind.TIME:
            return parse_moment(text, name)
        case FilterKind.FLAG:
            if text not in ("true", "false"):
                raise InvalidInput("filter.truth", f"{name} must be true or false, not {text[:64]!r}", field=name)
            return text == "true"
        case FilterKind.WORDS:
            return _read_words(name, text)
        case FilterKind.ID:
            if not is_id(text):
                raise InvalidInput("filter.id", f"{name} must be an id of 36 characters", field=name)
            return text
        case FilterKind.ERROR_GROUP:
            if not is_fingerprint_key(text):
                raise InvalidInput(
                    "filter.error", f"{name} must be the key of an error group", field=name, hint="list the groups"
                )
            return text


def _read_choice(field: FilterField, text: str) -> str:
    # The choice itself is returned: the member of an enumeration, not the equal text.
    for choice in field.choices:
        if choice == text:
            return choice
    known = ", ".join(field.choices)
    raise InvalidInput("filter.choice", f"{field.name} must be one of {known}, not {text[:64]!r}", field=field.name)


def _read_words(name: str, text: str) -> str:
    count = len(tokenize(check_subject(text, name)))
    if not 1 <= count <= TOKENS_MAX:
        raise InvalidInput(
            "filter.words",
            f"{name} must contain 1 to {TOKENS_MAX} words, got {count}",
            field=name,
            hint="words consist of letters and digits; other characters only separate them",
        )
    return text
