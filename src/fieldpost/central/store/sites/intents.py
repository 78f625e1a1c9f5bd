"""Intents: requests of operators to sites, kept until they are done. Every change is a compare-and-set."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Text, insert, select, update

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.purging import DatedTable
from fieldpost.central.store.engine.records import Records, before
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.site_tables import IS_OPEN, intents
from fieldpost.core.ids import is_id
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.sites.intent import Intent, IntentKind, IntentState, expiry_detail

_INTENTS = Records(intents, Intent)
_NEWEST_FIRST = intents.c.created_at.desc(), intents.c.intent_id.desc()

_send = Statement(
    """
    update intents set state = 'sent', attempts = attempts + 1, sent_at = {now}, version = version + 1
    where intent_id {any:ids} and state in ('waiting', 'sent') and expires_at > {now}
    returning intent_id
    """,
    lists={"ids": "id"},
    result={"intent_id": Id},
)
_cancel = Statement(
    """
    update intents set state = 'cancelled', done_at = {now}, detail = :detail, version = version + 1
    where intent_id = :intent_id and state = 'waiting'
    returning intent_id
    """,
    result={"intent_id": Id},
)
_expire = Statement(
    """
    update intents set state = 'expired', outcome = 'site_unreachable', done_at = {now}, version = version + 1,
        detail = case when attempts = 0 then :never_sent else :not_answered end
    where state in ('waiting', 'sent') and expires_at <= {now}
    returning intent_id
    """,
    result={"intent_id": Id},
)
_open_counts = Statement(
    f"select site, count(*) as waiting from intents where {IS_OPEN} group by site",
    result={"site": Text, "waiting": BigInteger},
)

_about_these = Statement(
    f"""
    select {_INTENTS.names} from intents
    where message_id is not null and message_id {{any:ids}} order by created_at desc, intent_id desc limit :limit
    """,
    lists={"ids": "id"},
    result=_INTENTS.types,
)

ENDED = DatedTable("intents", "done_at")


def add(conn: Connection, given: Sequence[Intent]) -> None:
    rows = [_INTENTS.values(intent) for intent in given]
    for row in rows:
        del row["answer"]  # a JSON column would store None as JSON's null; a missing value is null in the database
    conn.execute(insert(intents), rows)


def get(conn: Connection, intent_id: str) -> Intent | None:
    return _INTENTS.first(conn, intents.c.intent_id == intent_id) if is_id(intent_id) else None


def open_of(conn: Connection, sites: Sequence[str], limit: int) -> list[Intent]:
    """The waiting and the sent but unanswered intents of these sites, oldest first."""
    query = select(*_INTENTS.columns).where(intents.c.state.in_(["waiting", "sent"]), intents.c.site.in_(sites))
    return _INTENTS.find(conn, query.order_by(intents.c.intent_id).limit(limit))


def open_counts(conn: Connection) -> dict[str, int]:
    """The number of open intents by site; sites without any are left out."""
    return {row.site: row.waiting for row in _open_counts.run(conn)}


def about(conn: Connection, site: str, message_id: str, limit: int = 20) -> list[Intent]:
    """The newest intents about one call or notification of a site."""
    if not is_id(message_id):
        return []
    query = select(*_INTENTS.columns).where(intents.c.message_id == message_id, intents.c.site == site)
    return _INTENTS.find(conn, query.order_by(*_NEWEST_FIRST).limit(limit))


def about_these(conn: Connection, message_ids: Sequence[str], limit: int = 1000) -> list[Intent]:
    """The newest intents about these calls or notifications, of all sites, newest first."""
    if not message_ids:
        return []
    return [_INTENTS.of(row) for row in _about_these.run(conn, ids=list(message_ids), limit=limit)]


def newest_of(conn: Connection, site: str, kind: IntentKind) -> Intent | None:
    """The newest intent of this kind for the site."""
    query = select(*_INTENTS.columns).where(intents.c.site == site, intents.c.kind == kind.value)
    return next(iter(_INTENTS.find(conn, query.order_by(*_NEWEST_FIRST).limit(1))), None)


def find(
    conn: Connection, *, site: str | None, states: Sequence[IntentState], limit: int, key: PageKey | None
) -> list[Intent]:
    """Intents, newest first, after this key."""
    c = intents.c
    query = select(*_INTENTS.columns).order_by(*_NEWEST_FIRST).limit(limit)
    if site is not None:
        query = query.where(c.site == site)
    if states:
        query = query.where(c.state.in_([state.value for state in states]))
    if key is not None:
        query = query.where(before(c.created_at, c.intent_id, key))
    return _INTENTS.find(conn, query)


def sent(conn: Connection, intent_ids: Sequence[str], *, now: datetime | None) -> set[str]:
    """Mark these as sent; the ids that may be sent, without cancelled and expired ones."""
    return {row.intent_id for row in _send.run(conn, ids=list(intent_ids), now=now)} if intent_ids else set()


def settle(conn: Connection, intent: Intent, *, now: datetime) -> bool:
    """Write the outcome of an intent; False if it has changed since it was read."""
    assert intent.outcome is not None, "a settled intent has an outcome"
    values: dict[str, Any] = {
        "state": IntentState.DONE.value,
        "outcome": intent.outcome.value,
        "detail": intent.detail,
        "done_at": now,
        "version": intent.version + 1,
    }
    if intent.answer is not None:
        values["answer"] = dict(intent.answer)
    changed = update(intents).where(intents.c.intent_id == intent.intent_id, intents.c.version == intent.version)
    return conn.execute(changed.values(**values)).rowcount == 1


def cancel(conn: Connection, intent_id: str, detail: str, *, now: datetime | None) -> bool:
    """Cancel an intent that was not sent yet; False if it is no longer waiting."""
    return bool(_cancel.run(conn, intent_id=intent_id, detail=detail, now=now))


def expire(conn: Connection, *, now: datetime | None) -> list[str]:
    """Expire all open intents that are past their time; their ids."""
    found = _expire.run(conn, never_sent=expiry_detail(0), not_answered=expiry_detail(1), now=now)
    return [row.intent_id for row in found]
