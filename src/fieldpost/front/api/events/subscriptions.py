"""`/subscriptions`: receivers of events. Secrets can be set and rotated but not read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from fieldpost.central.access.ownership import own_name
from fieldpost.central.operate.recovery import RecoveryPreview
from fieldpost.central.operate.subscriptions import SecretShown
from fieldpost.central.operate.trial import Trial
from fieldpost.central.watch.events.subscriptions import SubscriptionHealth
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.search.filters import SUBSCRIPTION_FILTERS, parse_moment, read_filters
from fieldpost.front.api.bulk_actions import BULK_ACTION
from fieldpost.front.api.channels import TEST
from fieldpost.front.http.call import ApiAnswer, Call, changes
from fieldpost.link.http.body import Body, RowVersion
from fieldpost.link.http.endpoint_spec import MOMENT, PAGED, Parameter, filter_parameters, spec
from fieldpost.link.http.view import View, ViewField, within


class NewFilterEntry(Body, frozen=True):
    """Conditions that must all hold; by the rule `native`, `*` in a value stands for any characters."""

    topic: str = "*"
    action: str | None = None
    resource: str | None = None
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    rule: Literal["native", "zgw"] = "native"
    """How it matches; `zgw` is the rule of the ZGW API, whose abonnementen have it."""


class NewSubscription(Body, frozen=True):
    name: str
    filter: list[NewFilterEntry]
    """An event is delivered if one entry accepts it."""
    settings: dict[str, object]
    """At least `url`."""
    owner: str | None = None
    """Who receives the events; for a subscriber always its own owner, which is the default."""
    secrets: dict[str, object] = msgspec.field(default_factory=dict)
    retry: str | None = None


class ChangedSubscription(Body, frozen=True):
    """Only the fields to change. Null resets a setting to its default and clears a secret; an empty secret is kept."""

    version: RowVersion
    name: str | UnsetType = UNSET
    filter: list[NewFilterEntry] | UnsetType = UNSET
    settings: dict[str, object] = msgspec.field(default_factory=dict)
    secrets: dict[str, object] = msgspec.field(default_factory=dict)
    retry: str | UnsetType | None = UNSET


class RotatedSecret(Body, frozen=True):
    version: RowVersion
    secret: str | None = None
    """The new signing secret; one is generated unless given."""


class ChangedState(Body, frozen=True):
    version: RowVersion
    reason: str | None = None


class NewRecovery(Body, frozen=True):
    """Since when events are sent again."""

    since: str
    reason: str = "recovered"


class EnabledSubscription(Body, frozen=True):
    version: RowVersion
    resume_from: str | None = None
    """Recover events since this time; null for new events only."""


@dataclass(frozen=True, slots=True)
class ShownSubscription:
    """A subscription with the state of its secrets, its health, and a new secret if one was just generated."""

    of: SubscriptionHealth
    secrets: Mapping[str, str]
    new_secret: str | None = None


@dataclass(frozen=True, slots=True)
class ShownSubscriptions:
    subscriptions: Sequence[ShownSubscription]
    next_cursor: str | None
    as_of: datetime


def _retry(shown: ShownSubscription) -> str | None:
    retry = shown.of.subscription.retry
    return to_text(retry) if retry else None


ENTRY = View("FilterEntryView", FilterEntry, "topic action resource attributes rule")
SUBSCRIPTION = View(
    "SubscriptionView",
    ShownSubscription,
    within("of.subscription", "subscription_id name owner"),
    ViewField("filter", "of.subscription.filter", view=ENTRY),
    within("of.subscription", "state state_reason state_by state_at is_verified is_restricted settings"),
    "secrets",
    ViewField("retry", _retry),
    within("of", "health held"),
    within("of.breaker", "failures last_error last_failure_at open_until"),
    "version=of.subscription.version new_secret",
    description="`is_verified` is false until the receiver has answered a signed test, for a URL that a subscriber "
    "gave. `is_restricted`: it matches only topics that its owner may read. `health` is healthy, monitored (its "
    "receiver has failed), blocked, untried, or the state if it is not active. `held` counts notifications behind its "
    "breaker or pause. `new_secret` is shown once, when it was generated.",
)
RECOVERY_PREVIEW = View(
    "RecoveryPreviewView",
    RecoveryPreview,
    "parked missing is_whole events_from",
    description="`is_whole` is false if there are more events than were counted.",
)
PAGE = View(
    "SubscriptionPageView",
    ShownSubscriptions,
    ViewField("subscriptions", view=SUBSCRIPTION),
    "next_cursor as_of",
)


@spec(PAGE, query=(*filter_parameters(SUBSCRIPTION_FILTERS), *PAGED))
async def page(call: Call) -> ShownSubscriptions:
    """List subscriptions by name; for a subscriber, those of its owner."""
    wanted = read_filters(SUBSCRIPTION_FILTERS, call.filters(SUBSCRIPTION_FILTERS))
    owner = own_name(call.actor, wanted.get("owner"))
    found = await call.watch.subscriptions.page(owner=owner, states=wanted.get("states", ()), **call.paging())
    shown = [_shown(call, one) for one in found.subscriptions]
    return ShownSubscriptions(shown, found.next_cursor, found.as_of)


@spec(PAGE)
async def unhealthy(call: Call) -> ShownSubscriptions:
    """List the subscriptions whose receivers fail, blocked ones first."""
    found = await call.watch.subscriptions.unhealthy(call.actor.owner_limit)
    return ShownSubscriptions([_shown(call, one) for one in found.subscriptions], None, found.as_of)


@spec(SUBSCRIPTION)
async def show(call: Call) -> ShownSubscription:
    """Show one subscription with its filter, settings and health."""
    return await _read(call, call.path("subscription_id"))


@spec(SUBSCRIPTION, 201, body=NewSubscription, problems=(409,))
async def add(call: Call) -> ShownSubscription:
    """Add a subscription. Unless a signing secret is given, one is generated and shown once, as `new_secret`. One that
    a subscriber adds is `unverified`: its notifications are held until the receiver answers a test with 2xx."""
    new = await call.read(NewSubscription)
    added = await call.operate.subscriptions.add(
        call.actor, new.name, new.owner, filter_entries(new.filter), new.settings, new.secrets, retry=new.retry
    )
    return await _with_secret(call, added)


@spec(SUBSCRIPTION, body=ChangedSubscription, problems=(409,))
async def change(call: Call) -> ShownSubscription:
    """Change a subscription at the `version` that the caller has seen. Waiting notifications use the new values. The
    secret `auth_secret` must be given again if it would be sent to another host. After a subscriber changed the URL,
    the subscription is `unverified` until the receiver answers a test with 2xx."""
    change = await call.read(ChangedSubscription)
    given = {} if change.filter is UNSET else {"filter": filter_entries(change.filter)}
    changed = await call.operate.subscriptions.change(
        call.actor, call.path("subscription_id"), change.version, **changes(change, **given)
    )
    return await _read(call, changed.subscription_id)


@spec(SUBSCRIPTION, body=RotatedSecret, problems=(409,))
async def rotate(call: Call) -> ShownSubscription:
    """Replace the signing secret. For 24 hours requests are signed with the former one too."""
    wanted = await call.read(RotatedSecret)
    rotated = await call.operate.subscriptions.rotate(
        call.actor, call.path("subscription_id"), wanted.version, wanted.secret
    )
    return await _with_secret(call, rotated)


@spec(TEST, problems=(409,))
async def test(call: Call) -> Trial:
    """Send a signed test event to the receiver and return the conversation without secrets. A subscription that waits
    for a test becomes active if the receiver answers with 2xx."""
    return await call.operate.subscriptions.test(call.actor, _id(call))


@spec(SUBSCRIPTION, body=ChangedState, problems=(409,))
async def pause(call: Call) -> ShownSubscription:
    """Pause a subscription: its notifications, new ones too, are held until it is resumed."""
    wanted = await call.read(ChangedState)
    return await _moved(
        call, await call.operate.subscriptions.pause(call.actor, _id(call), wanted.version, wanted.reason)
    )


@spec(SUBSCRIPTION, body=ChangedState, problems=(409,))
async def resume(call: Call) -> ShownSubscription:
    """Resume a paused subscription; held notifications are sent."""
    wanted = await call.read(ChangedState)
    return await _moved(call, await call.operate.subscriptions.resume(call.actor, _id(call), wanted.version))


@spec(SUBSCRIPTION, body=ChangedState, problems=(409,))
async def disable(call: Call) -> ShownSubscription:
    """Disable a subscription: no notifications are created any more, and waiting ones are parked."""
    wanted = await call.read(ChangedState)
    return await _moved(
        call, await call.operate.subscriptions.disable(call.actor, _id(call), wanted.version, wanted.reason)
    )


@spec(SUBSCRIPTION, body=EnabledSubscription, problems=(409,))
async def enable(call: Call) -> ShownSubscription:
    """Enable a disabled subscription. With `resume_from`, a recovery since that time starts."""
    wanted = await call.read(EnabledSubscription)
    since = None if wanted.resume_from is None else parse_moment(wanted.resume_from, "resume_from")
    enabled, _ = await call.operate.subscriptions.enable(call.actor, _id(call), wanted.version, since)
    return await _moved(call, enabled)


@spec(RECOVERY_PREVIEW, query=(Parameter("since", MOMENT, "Since when", is_required=True),))
async def preview(call: Call) -> RecoveryPreview:
    """Count the parked notifications that a recovery since this time would retry, and the missing ones that it would
    create. `events_from` is the time of the oldest event that is still stored."""
    since = parse_moment(call.parameter("since", ""), "since")
    return await call.operate.recovery.preview(call.actor, _id(call), since)


@spec(BULK_ACTION, 202, body=NewRecovery, problems=(409,))
async def recover(call: Call) -> ApiAnswer:
    """Retry the parked notifications of events since a time and create the missing ones, as a bulk action."""
    wanted = await call.read(NewRecovery)
    action = await call.operate.recovery.start(
        call.actor, _id(call), parse_moment(wanted.since, "since"), wanted.reason
    )
    return ApiAnswer(action, headers={"Location": f"/api/v1/bulk-actions/{action.action_id}"})


@spec(SUBSCRIPTION, body=ChangedState, problems=(409,))
async def remove(call: Call) -> ShownSubscription:
    """Remove a subscription: no notifications are created any more, and waiting ones are discarded. The record stays
    for history."""
    wanted = await call.read(ChangedState)
    return await _moved(
        call, await call.operate.subscriptions.remove(call.actor, _id(call), wanted.version, wanted.reason)
    )


def _id(call: Call) -> str:
    return call.path("subscription_id")


def filter_entries(given: Sequence[NewFilterEntry]) -> list[FilterEntry]:
    return [
        FilterEntry(topic=one.topic, action=one.action, resource=one.resource, attributes=one.attributes, rule=one.rule)
        for one in given
    ]


async def _read(call: Call, subscription_id: str) -> ShownSubscription:
    found, _ = await call.watch.subscriptions.one(subscription_id, call.actor.owner_limit)
    return _shown(call, found)


async def _moved(call: Call, changed: Subscription) -> ShownSubscription:
    return await _read(call, changed.subscription_id)


async def _with_secret(call: Call, made: SecretShown) -> ShownSubscription:
    found, _ = await call.watch.subscriptions.one(made.subscription.subscription_id)
    return _shown(call, found, made.secret.reveal() if made.secret else None)


def _shown(call: Call, found: SubscriptionHealth, new_secret: str | None = None) -> ShownSubscription:
    return ShownSubscription(found, call.operate.subscriptions.shown_secrets(found.subscription), new_secret)
