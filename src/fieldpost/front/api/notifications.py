"""`/notifications`: look, retry, discard."""

from typing import Any

import msgspec

from fieldpost.central.watch.notifications import AttemptRecord, Detail, ErrorGroup, NotificationSummary
from fieldpost.core.actor import Actor
from fieldpost.core.audit import AuditEntry
from fieldpost.core.notification import Notification
from fieldpost.core.search.filters import NOTIFICATION_FILTERS
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.times import to_text
from fieldpost.front.http.call import ApiAnswer, Body, Call
from fieldpost.front.http.endpoint_spec import PAGED, filter_parameters, spec


class NotificationLine(msgspec.Struct, frozen=True, kw_only=True):
    """A notification in a list of many."""

    notification_id: str
    status: str
    type: str
    list_name: str
    subject: str
    source_site: str
    retry_count: int
    attempt_count: int
    cycle: int
    version: int
    is_stuck: bool
    last_error: str | None
    held_by: str | None
    created_at: str
    last_attempt_at: str | None
    next_attempt_at: str | None
    delivered_at: str | None


class NotificationPage(msgspec.Struct, frozen=True):
    notifications: list[NotificationLine]
    next_cursor: str | None
    as_of: str


class ErrorGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """Parked notifications with the same error."""

    key: str
    fingerprint: str
    count: int
    first_parked_at: str
    last_parked_at: str
    example_id: str
    example_error: str


class ErrorGroupsView(msgspec.Struct, frozen=True):
    groups: list[ErrorGroupView]
    is_whole: bool


class TargetView(msgspec.Struct, frozen=True):
    address: str
    status: str
    error: str | None


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    cycle: int
    node_id: str
    started_at: str
    finished_at: str | None
    outcome: str | None
    phase: str | None
    reply: str | None
    error: str | None
    duration_ms: int | None


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    occurred_at: str
    kind: str
    status: str
    actor: str
    target: str | None
    duration_ms: int | None
    error_message: str | None
    request_summary: str | None
    response_summary: str | None


class NotificationDetail(NotificationLine, frozen=True, kw_only=True):
    """A notification with its whole story."""

    why: str
    body: str | None
    """Null to whoever only views."""
    source_instance: str | None
    source_script: str | None
    execution_id: str | None
    parent_execution_id: str | None
    site_enqueued_at: str | None
    held_reason: str | None
    terminal_at: str | None
    targets: list[TargetView]
    attempts: list[AttemptView]
    audit: list[AuditView]
    as_of: str


class SeenVersion(Body, frozen=True):
    """The version of what the caller looked at; nothing is done if it has changed since."""

    version: int


class Changed(msgspec.Struct, frozen=True):
    notification_id: str
    status: str
    version: int


@spec(NotificationPage, query=(*filter_parameters(NOTIFICATION_FILTERS), *PAGED))
async def page(call: Call) -> ApiAnswer:
    """A page, newest first; filtered by `status` (repeatable), `type`, `site`, `list`, `from` and `to` (arrival, in
    UTC), `stuck`, `overdue`, `subject` (words that must all occur) and `error` (a group's key); paged by `limit` and
    `cursor`. While `next_cursor` is given there may be more, also on a page with fewer notifications than `limit`."""
    query = call.query()
    wanted = Filter.parse(call.filters(NOTIFICATION_FILTERS))
    found = await call.watch.notifications.page(wanted, limit=call.limit(query), cursor=_one(query, "cursor"))
    return ApiAnswer(
        NotificationPage(
            [NotificationLine(**_line(line)) for line in found.lines], found.next_cursor, to_text(found.as_of)
        )
    )


@spec(ErrorGroupsView)
async def parked_groups(call: Call) -> ApiAnswer:
    """What is parked, grouped by what went wrong, the largest group first; `key` goes into the filter `error`."""
    call.query()
    found = await call.watch.notifications.parked_groups()
    return ApiAnswer(ErrorGroupsView([_group(group) for group in found.groups], found.is_whole))


@spec(NotificationDetail)
async def show(call: Call) -> ApiAnswer:
    """One notification with its targets, attempts, audit entries, and the sentence that explains it."""
    call.query()
    return ApiAnswer(_detail(await call.watch.notifications.detail(call.path("notification_id")), call.actor))


@spec(Changed, body=SeenVersion, problems=(409,))
async def retry(call: Call) -> ApiAnswer:
    """Back to pending, in a new cycle, for the targets that failed; the body names the `version` that was seen."""
    seen = await call.read(SeenVersion)
    return _changed(await call.operate.notifications.retry(call.actor, call.path("notification_id"), seen.version))


@spec(Changed, body=SeenVersion, problems=(409,))
async def discard(call: Call) -> ApiAnswer:
    """Given up for good, the row stays; the body names the `version` that was seen."""
    seen = await call.read(SeenVersion)
    return _changed(await call.operate.notifications.discard(call.actor, call.path("notification_id"), seen.version))


def _changed(n: Notification) -> ApiAnswer:
    return ApiAnswer(Changed(n.notification_id, n.status.value, n.version))


def _one(query: dict[str, list[str]], name: str) -> str | None:
    return query[name][0] if name in query else None


def _line(line: NotificationSummary) -> dict[str, Any]:
    n = line.notification
    return {
        "notification_id": n.notification_id,
        "status": n.status.value,
        "type": n.type,
        "list_name": n.list_name,
        "subject": n.subject,
        "source_site": n.provenance.site,
        "retry_count": n.retry_count,
        "attempt_count": line.attempt_count,
        "cycle": n.cycle,
        "version": n.version,
        "is_stuck": line.is_stuck,
        "last_error": n.last_error,
        "held_by": n.held_by,
        "created_at": to_text(n.created_at),
        "last_attempt_at": to_text(n.last_attempt_at) if n.last_attempt_at else None,
        "next_attempt_at": to_text(n.next_attempt_at) if n.next_attempt_at else None,
        "delivered_at": to_text(n.delivered_at) if n.delivered_at else None,
    }


def _group(group: ErrorGroup) -> ErrorGroupView:
    return ErrorGroupView(
        key=group.key,
        fingerprint=group.fingerprint,
        count=group.count,
        first_parked_at=to_text(group.first_at),
        last_parked_at=to_text(group.last_at),
        example_id=group.example_id,
        example_error=group.example,
    )


def _detail(detail: Detail, actor: Actor) -> NotificationDetail:
    n = detail.notification
    p = n.provenance
    return NotificationDetail(
        **_line(NotificationSummary(n, len(detail.attempts), detail.is_stuck)),
        why=detail.why,
        body=n.body if actor.may_read_bodies else None,
        source_instance=p.instance,
        source_script=p.script,
        execution_id=p.execution_id,
        parent_execution_id=p.parent_execution_id,
        site_enqueued_at=to_text(n.site_enqueued_at) if n.site_enqueued_at else n.site_enqueued_text,
        held_reason=n.held_reason,
        terminal_at=to_text(n.terminal_at) if n.terminal_at else None,
        targets=[TargetView(t.address, t.status.value, t.error) for t in n.targets],
        attempts=[_attempt(attempt) for attempt in detail.attempts],
        audit=[_audit(entry) for entry in detail.audit],
        as_of=to_text(detail.as_of),
    )


def _attempt(attempt: AttemptRecord) -> AttemptView:
    return AttemptView(
        cycle=attempt.cycle,
        node_id=attempt.node_id,
        started_at=to_text(attempt.started_at),
        finished_at=to_text(attempt.finished_at) if attempt.finished_at else None,
        outcome=attempt.outcome,
        phase=attempt.phase,
        reply=attempt.reply,
        error=attempt.error,
        duration_ms=attempt.duration_ms,
    )


def _audit(entry: AuditEntry) -> AuditView:
    return AuditView(
        occurred_at=to_text(entry.occurred_at),
        kind=entry.kind.value,
        status=entry.status.value,
        actor=entry.actor,
        target=entry.target,
        duration_ms=entry.duration_ms,
        error_message=entry.error_message,
        request_summary=entry.request_summary,
        response_summary=entry.response_summary,
    )
