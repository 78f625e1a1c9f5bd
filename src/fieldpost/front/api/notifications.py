"""`/notifications`: list, show, retry and discard notifications."""

from dataclasses import replace

from fieldpost.central.watch.events.deliveries import Delivery, DeliveryPage
from fieldpost.central.watch.notifications import (
    AttemptRecord,
    Detail,
    ErrorGroup,
    ErrorGroups,
    NotificationSummary,
    Page,
)
from fieldpost.core.actor import Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery.exchange import Exchange, HttpTry
from fieldpost.core.delivery.explain import explain_attempt
from fieldpost.core.errors import Denied
from fieldpost.core.notification import Notification, Target
from fieldpost.core.search.filters import DELIVERY_FILTERS, NOTIFICATION_FILTERS
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.times import to_text
from fieldpost.front.http.call import Call
from fieldpost.link.http.body import Body, RowVersion
from fieldpost.link.http.endpoint_spec import PAGED, filter_parameters, spec
from fieldpost.link.http.view import View, ViewField, within


class SeenVersion(Body, frozen=True):
    """The version that the caller has seen; the request fails if it is outdated."""

    version: RowVersion


def _attempt_count(detail: Detail) -> int:
    return len(detail.attempts)


def _enqueued_at(detail: Detail) -> str | None:
    n = detail.notification
    return to_text(n.site_enqueued_at) if n.site_enqueued_at else n.site_enqueued_text


def _why_ended(attempt: AttemptRecord) -> str:
    return explain_attempt(attempt.outcome, attempt.error, attempt.duration_ms, attempt.exchanges)


_HEAD = (
    within("notification", "notification_id status type list_name subject"),
    "source_site=notification.provenance.site",
    within("notification", "retry_count severity incident is_cleared"),
)
_TAIL = (
    within("notification", "cycle version"),
    "is_stuck",
    within("notification", "last_error held_by created_at last_attempt_at delivered_at"),
)
LINE = View(
    "NotificationLine",
    NotificationSummary,
    *_HEAD,
    "attempt_count",
    *_TAIL,
    within("notification", "next_attempt_at whole_id whole_list"),
    description="A notification in a list.",
)
PAGE = View("NotificationPage", Page, ViewField("notifications", "lines", LINE), "next_cursor as_of")
GROUP = View(
    "ErrorGroupView",
    ErrorGroup,
    "key fingerprint count first_parked_at=first_at last_parked_at=last_at example_id example_error=example",
    description="Parked notifications with equal errors.",
)
GROUPS = View("ErrorGroupsView", ErrorGroups, ViewField("groups", view=GROUP), "is_whole")
TARGET = View("TargetView", Target, "address status error truncated_to provider_id")
TRY = View("HttpTryView", HttpTry, "offset_ms duration_ms status phase error")
EXCHANGE = View(
    "ExchangeView",
    Exchange,
    "url",
    ViewField("tries", view=TRY),
    "request_headers status response_headers response_body",
    description="The tries of an attempt to one URL, and the last response. Values of signature and credentials are "
    "replaced. `response_headers` and `response_body`, its first kilobyte, are null unless the caller is an "
    "administrator or the owner of the subscription.",
)
ATTEMPT = View(
    "AttemptView",
    AttemptRecord,
    "cycle node_id started_at finished_at outcome phase reply error duration_ms",
    ViewField("why", _why_ended),
    ViewField("exchanges", view=EXCHANGE),
    description="`why` is a sentence about the end of the attempt. `exchanges` are the requests and responses of a "
    "webhook, one per URL.",
)
DELIVERY = View(
    "DeliveryView",
    Delivery,
    within("notification", "notification_id event_id status subject created_at delivered_at next_attempt_at"),
    within("notification", "last_error held_by held_reason version"),
    "attempt_count",
    ViewField("attempts", view=ATTEMPT),
    description="A notification of a subscription with its newest attempts, at most 10, oldest first.",
)
DELIVERIES = View("DeliveriesView", DeliveryPage, ViewField("deliveries", view=DELIVERY), "next_cursor as_of")
AUDIT = View(
    "AuditView",
    AuditEntry,
    "occurred_at kind status actor target duration_ms error_message request_summary response_summary",
)
DETAIL = View(
    "NotificationDetail",
    Detail,
    *_HEAD,
    ViewField("attempt_count", _attempt_count),
    *_TAIL,
    "next_attempt_at why",
    ViewField("body", "notification.body", role=Role.OPERATOR),
    "request_body",
    "source_instance=notification.provenance.instance source_script=notification.provenance.script",
    within("notification.provenance", "execution_id parent_execution_id"),
    ViewField("site_enqueued_at", _enqueued_at),
    within("notification", "held_reason terminal_at event_id"),
    within("notification", "whole_id whole_list"),
    ViewField("targets", "notification.targets", TARGET),
    ViewField("parts", view=LINE),
    ViewField("attempts", view=ATTEMPT),
    ViewField("audit", view=AUDIT),
    "as_of",
    description="A notification with its targets, attempts and audit entries. `body` is null for viewers. "
    "`parts` are the notifications that a submission to a list of lists became; its status is folded from theirs. "
    "`request_body` is the first kilobyte of a webhook's request as it would be sent now, for those who may read it.",
)
CHANGED = View("Changed", Notification, "notification_id status version")


@spec(PAGE, query=(*filter_parameters(NOTIFICATION_FILTERS), *PAGED))
async def page(call: Call) -> Page:
    """List notifications, newest first; for a publisher, its own. A page may have fewer than `limit` and still a
    `next_cursor`."""
    wanted = Filter.parse(call.filters(NOTIFICATION_FILTERS))
    if (own := call.actor.own_source) is not None:
        if wanted.site not in (None, own):
            raise Denied("access.own", f"a publisher reads only its own notifications, those of {own!r}")
        wanted = replace(wanted, site=own)
    return await call.watch.notifications.page(wanted, **call.paging())


@spec(GROUPS)
async def parked_groups(call: Call) -> ErrorGroups:
    """Group parked notifications by error, the largest group first; pass `key` as the filter `error`."""
    return await call.watch.notifications.parked_groups()


@spec(DETAIL)
async def show(call: Call) -> Detail:
    """Show one notification with its targets, attempts and audit entries, and explain its status."""
    return await call.watch.seen_notification(call.actor, call.path("notification_id"))


@spec(DELIVERIES, query=(*filter_parameters(DELIVERY_FILTERS), *PAGED))
async def deliveries(call: Call) -> DeliveryPage:
    """The delivery log of a subscription: its notifications with their attempts, requests and responses, newest first.
    A page may have fewer than `limit` and still a `next_cursor`."""
    wanted = Filter.parse(call.filters(DELIVERY_FILTERS))
    return await call.watch.deliveries.page(call.actor, call.path("subscription_id"), wanted, **call.paging())


@spec(CHANGED, body=SeenVersion, problems=(409,))
async def retry(call: Call) -> Notification:
    """Return a parked notification to pending, in a new cycle, for the targets that failed."""
    seen = await call.read(SeenVersion)
    return await call.operate.notifications.retry(call.actor, call.path("notification_id"), seen.version)


@spec(CHANGED, body=SeenVersion, problems=(409,))
async def resend(call: Call) -> Notification:
    """Send a delivered or parked notification of a subscription again, under the same id."""
    seen = await call.read(SeenVersion)
    return await call.operate.notifications.resend(call.actor, call.path("notification_id"), seen.version)


@spec(CHANGED, body=SeenVersion, problems=(409,))
async def discard(call: Call) -> Notification:
    """Discard a parked notification permanently. The row stays."""
    seen = await call.read(SeenVersion)
    return await call.operate.notifications.discard(call.actor, call.path("notification_id"), seen.version)
