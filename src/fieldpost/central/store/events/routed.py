"""Notifications that routes make of events: recorded with their text and, for `to`, with their target.

A notification whose text or address could not be made is a draft: recorded as parked, or as pending where it was not
tried. Claims leave the targets of drafts alone; the attempt makes text and targets first (`complete`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Integer, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.core.lists import UNRESOLVED_TYPE
from fieldpost.core.notification import LIST_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedNotification:
    """A notification to record. It is a draft unless it has a template version; with an error it is parked."""

    notification_id: str
    event_id: str
    route_id: str
    list_name: str
    subject: str = ""
    """Empty for a draft, which shows the topic."""
    body: str = ""
    address: str | None = None
    """The one target, from the payload; None for the list's own targets."""
    template_type: str | None = None
    template_version: int | None = None
    severity: str | None = None
    """None for that of the list."""
    incident: str | None = None
    is_cleared: bool = False
    error: str | None = None
    whole_id: str | None = None
    """Of a part, with the list of lists that the route leads to."""
    whole_list: str | None = None


@dataclass(frozen=True, slots=True)
class CompletedDraft:
    """The text of a draft, and its target if the route has `to`."""

    notification_id: str
    subject: str
    body: str
    address: str | None
    template_type: str
    template_version: int
    severity: str | None = None
    incident: str | None = None
    is_cleared: bool = False


@dataclass(frozen=True, slots=True)
class RoutedBy:
    """The route and template version of a notification."""

    notification_id: str
    route_id: str
    route_name: str | None
    template_type: str | None
    template_version: int | None


_ROWS: dict[str, ParameterKind] = {
    "notification_id": "id",
    "event_id": "id",
    "route_id": "id",
    "list_name": "text",
    "subject": "text",
    "body": "text",
    "template_type": "text",
    "template_version": "int",
    "severity": "text",
    "incident": "text",
    "is_cleared": "bool",
    "error": "text",
    "whole_id": "id",
    "whole_list": "text",
}
_EMPTY = {"body": "", "is_cleared": False}
"""The columns that are never null."""
# One statement on PostgreSQL: a round trip costs more than the rows. SQLite has no writing common table expressions.
_insert = Statement(
    """
    with inserted as (
    insert into notifications (notification_id, event_id, route_id, list_name, delivery_key, type, subject, body,
        template_type, template_version, is_draft, status, last_error, source_site_id, digest, created_at, due_at,
        terminal_at, cycle_started_at, whole_id, whole_list, severity, incident, is_cleared)
    select u.notification_id, e.event_id, u.route_id, u.list_name, :key_prefix || u.list_name,
        coalesce(l.type, :unresolved), coalesce(u.subject, e.topic), u.body, u.template_type, u.template_version,
        u.template_version is null, case when u.error is null then 'pending' else 'parked' end, u.error, e.source,
        e.digest, coalesce({at}, e.created_at), case when u.error is null then coalesce({at}, e.created_at) end,
        case when u.error is not null then coalesce({at}, e.created_at) end, coalesce({at}, e.created_at),
        u.whole_id, u.whole_list, coalesce(u.severity, l.severity), u.incident, u.is_cleared
    from {rows} join events e on e.event_id = u.event_id left join lists l on l.list_name = u.list_name
    where not exists (select 1 from tombstones t where t.notification_id = u.notification_id)
    order by u.notification_id
    on conflict (notification_id) do nothing
    returning notification_id, created_at, source_site_id, list_name
    ),
    to_index as (
        insert into search_backlog (notification_id, created_at, count)
        select (array_agg(notification_id))[1], created_at, count(*) from inserted group by created_at
    ),
    audited as (
        insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id,
            actor, target)
        select notification_id, created_at, created_at, notification_id, 'notification', 'notify_send', 'submitted',
            source_site_id, source_site_id, list_name
        from inserted
    )
    select notification_id, created_at from inserted
    """.replace("{at}", "cast(:at as timestamptz)"),
    sqlite="""
    insert into notifications (notification_id, event_id, route_id, list_name, delivery_key, type, subject, body,
        template_type, template_version, is_draft, status, last_error, source_site_id, digest, created_at, due_at,
        terminal_at, cycle_started_at, whole_id, whole_list, severity, incident, is_cleared)
    select u.notification_id, e.event_id, u.route_id, u.list_name, :key_prefix || u.list_name,
        coalesce(l.type, :unresolved), coalesce(u.subject, e.topic), u.body, u.template_type, u.template_version,
        u.template_version is null, case when u.error is null then 'pending' else 'parked' end, u.error, e.source,
        e.digest, coalesce(:at, e.created_at), case when u.error is null then coalesce(:at, e.created_at) end,
        case when u.error is not null then coalesce(:at, e.created_at) end, coalesce(:at, e.created_at),
        u.whole_id, u.whole_list, coalesce(u.severity, l.severity), u.incident, u.is_cleared
    from {rows} join events e on e.event_id = u.event_id left join lists l on l.list_name = u.list_name
    where not exists (select 1 from tombstones t where t.notification_id = u.notification_id)
    order by u.notification_id
    on conflict (notification_id) do nothing
    returning notification_id, created_at
    """,
    rows=_ROWS,
    result={"notification_id": Id, "created_at": Moment},
)
_audit = Statement(
    """
    insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id, actor,
        target)
    select notification_id, created_at, created_at, notification_id, 'notification', 'notify_send', 'submitted',
        source_site_id, source_site_id, list_name
    from notifications where notification_id {any:ids}
    """,
    lists={"ids": "id"},
)
_to_index = Statement("insert into search_backlog (notification_id, created_at, count) values (:id, :at, :count)")
_add_wholes = Statement(
    """
    insert into wholes (whole_id, list_name, source_site_id, digest, created_at)
    select u.whole_id, u.list_name, e.source, e.digest, coalesce(cast(:at as timestamptz), e.created_at)
    from {rows} join events e on e.event_id = u.event_id
    where not exists (select 1 from tombstones t where t.notification_id = u.whole_id)
    order by u.whole_id on conflict (whole_id) do nothing
    """,
    sqlite="""
    insert into wholes (whole_id, list_name, source_site_id, digest, created_at)
    select u.whole_id, u.list_name, e.source, e.digest, coalesce(:at, e.created_at)
    from {rows} join events e on e.event_id = u.event_id
    where not exists (select 1 from tombstones t where t.notification_id = u.whole_id)
    on conflict (whole_id) do nothing
    """,
    rows={"whole_id": "id", "list_name": "text", "event_id": "id"},
)
_add_targets = Statement(
    """
    insert into targets (notification_id, address, status) select u.notification_id, u.address, 'due' from {rows}
    where true on conflict (notification_id, address) do nothing
    """,
    rows={"notification_id": "id", "address": "text"},
)
_complete = Statement(
    """
    update notifications set subject = u.subject, body = u.body, template_type = u.template_type,
        template_version = u.template_version, is_draft = false,
        severity = coalesce(u.severity, notifications.severity), incident = u.incident, is_cleared = u.is_cleared
    from {rows} where notifications.notification_id = u.notification_id and notifications.claim_token = u.claim_token
        and notifications.claim_owner = :owner and notifications.is_draft
    returning notifications.notification_id
    """,
    rows={
        "notification_id": "id",
        "claim_token": "int",
        "subject": "text",
        "body": "text",
        "template_type": "text",
        "template_version": "int",
        "severity": "text",
        "incident": "text",
        "is_cleared": "bool",
    },
    result={"notification_id": Id},
)
_add_list_targets = Statement(
    """
    insert into targets (notification_id, address, status)
    select n.notification_id, l.address, 'due' from notifications n
    join list_targets l on l.list_name = substr(n.delivery_key, 6)
    where n.notification_id {any:ids}
        and not exists (select 1 from targets t where t.notification_id = n.notification_id)
    """,
    lists={"ids": "id"},
)
_routed_by = Statement(
    """
    select n.notification_id, n.route_id, r.name as route_name, n.template_type, n.template_version
    from notifications n left join routes r on r.route_id = n.route_id
    where n.notification_id {any:ids} and n.route_id is not null
    """,
    lists={"ids": "id"},
    result={
        "notification_id": Id,
        "route_id": Id,
        "route_name": Text,
        "template_type": Text,
        "template_version": Integer,
    },
)


def record(conn: Connection, routed: Sequence[RoutedNotification], *, at: datetime | None = None) -> set[str]:
    """Insert notifications of recorded events, unless they exist or were purged. Returns the inserted ids.

    They are dated as their events, or at the given time if they are made later.
    """
    if not routed:
        return set()
    wholes = {(one.whole_id, one.whole_list, one.event_id) for one in routed if one.whole_id is not None}
    if wholes:
        _add_wholes.run(conn, sorted(wholes), at=at)
    rows = [tuple(getattr(one, name) or _EMPTY.get(name) for name in _ROWS) for one in routed]
    inserted = _insert.run(conn, rows, unresolved=UNRESOLVED_TYPE, key_prefix=LIST_KEY, at=at)
    ids = {row.notification_id for row in inserted}
    if ids and conn.dialect.name == "sqlite":
        _audit.run(conn, ids=sorted(ids))
        for created_at in {row.created_at for row in inserted}:
            same = [row.notification_id for row in inserted if row.created_at == created_at]
            _to_index.run(conn, id=same[0], at=created_at, count=len(same))
    _add_targets_of(conn, [(r.notification_id, r.address) for r in routed if r.notification_id in ids])
    return ids


def complete(conn: Connection, owner: str, drafts: Collection[tuple[CompletedDraft, int]]) -> set[str]:
    """Write text and targets of claimed drafts, each with its claim token; the ids that this owner still has."""
    rows = [
        (
            d.notification_id,
            token,
            d.subject,
            d.body,
            d.template_type,
            d.template_version,
            d.severity,
            d.incident,
            d.is_cleared,
        )
        for d, token in drafts
    ]
    done = {row.notification_id for row in _complete.run(conn, rows, owner=owner)} if rows else set()
    _add_targets_of(conn, [(d.notification_id, d.address) for d, _ in drafts if d.notification_id in done])
    plain = [d.notification_id for d, _ in drafts if d.address is None and d.notification_id in done]
    if plain:
        _add_list_targets.run(conn, ids=plain)
    return done


def routed_by(conn: Connection, ids: Collection[str]) -> dict[str, RoutedBy]:
    """Route and template of those of these notifications that a route made."""
    found = _routed_by.run(conn, ids=list(ids)) if ids else []
    return {
        row.notification_id: RoutedBy(
            row.notification_id, row.route_id, row.route_name, row.template_type, row.template_version
        )
        for row in found
    }


def _add_targets_of(conn: Connection, targets: Sequence[tuple[str, str | None]]) -> None:
    if rows := [(notification_id, address) for notification_id, address in targets if address is not None]:
        _add_targets.run(conn, rows)
