"""Ending attempts: the rows, their targets, attempts and audit entries change in one transaction.

A row changes only under the token that it was claimed with. The result of an attempt whose row another node has taken
over meanwhile is late: it is audited as late and changes nothing.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.notifications import audit, breakers, claims, finishing_postgresql, finishing_sqlite
from fieldpost.central.store.notifications.attempts import ClaimKey, Finished
from fieldpost.central.store.notifications.finishing_postgresql import is_simple
from fieldpost.central.store.notifications.finishing_sqlite import entry
from fieldpost.central.store.notifications.targets import write_targets
from fieldpost.core.audit import AuditStatus
from fieldpost.core.delivery.breaker import Breaker, record_success
from fieldpost.core.notification import Target

__all__ = ["apply", "deliver", "is_simple", "record_reached"]


def apply(conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str]) -> set[str]:
    """Write these results; the ids whose claim was lost, for which only a late audit entry was written.

    `event_ids` are two per result: for the attempt's audit entry, and for the terminal one where there is one.
    """
    write = finishing_sqlite.write if conn.dialect.name == "sqlite" else finishing_postgresql.write
    owned, ended = write(conn, owner, finished, event_ids)
    # A late result is recorded on its own attempt, unless that has an end already: then this is the second run of a
    # transaction whose COMMIT succeeded without an answer, and nothing is left to record.
    late = [
        (f, event_id)
        for f, event_id in zip(finished, event_ids[::2], strict=True)
        if f.claim not in owned and f.claim in ended
    ]
    audit.add_for_notifications(
        conn,
        owner,
        [entry(event_id, f, AuditStatus.SKIPPED, f"late result, nothing changed: {f.outcome}") for f, event_id in late],
    )
    return {f.notification_id for f, _ in late}


def deliver(
    conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str], breaker_keys: Collection[str]
) -> tuple[set[ClaimKey], set[str]]:
    """Write simple deliveries (`is_simple`) if a success changes none of these breakers.

    A single statement on PostgreSQL, for `write_one`. Returns the claims that are done, and the ids of those that were
    lost. `apply` is for what is left: everything if a breaker has to change, and lost claims on PostgreSQL.
    """
    if conn.dialect.name != "sqlite":
        return finishing_postgresql.deliver(conn, owner, finished, event_ids, breaker_keys), set()
    seen = breakers.load(conn, breaker_keys)
    found = (seen.get(key, Breaker(key)) for key in breaker_keys)
    if any(record_success(breaker) is not breaker for breaker in found):
        return set(), set()
    late = apply(conn, owner, finished, event_ids)
    return {f.claim for f in finished}, late


def record_reached(
    conn: Connection,
    owner: str,
    claim: ClaimKey,
    reached: Sequence[Target],
    at: datetime,
    *,
    lease_s: float,
    now: datetime | None,
) -> bool:
    """Write targets as reached while their attempt goes on, and renew its lease; False if the claim was lost."""
    if not claims.renew(conn, owner, [claim], lease_s=lease_s, now=now):
        return False
    write_targets(conn, [(claim[0], target, at) for target in reached])
    return True
