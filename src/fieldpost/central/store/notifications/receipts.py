"""Receipts of accepted targets: tokens of their URLs, times of polling, and reports that are not applied yet.

A row is written before the attempt, so that a receipt that arrives before the attempt's end finds it. A report waits in
the row until no attempt is in progress; the dispatcher applies it then.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, Text

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.statement import Statement
from fieldpost.core.delivery.receipt import FIRST_ASK, Receipt, ReceiptStatus, next_ask
from fieldpost.core.text import truncate


@dataclass(frozen=True, slots=True)
class OpenReceipt:
    """A target whose receipt is expected, or was reported and is not applied yet."""

    notification_id: str
    address: str
    channel_name: str
    provider_id: str | None
    asked_count: int = 0
    receipt: Receipt | None = None


_COLUMNS = "notification_id, address, channel_name, provider_id, asked_count, status, error"
_TYPES: Mapping[str, Any] = {
    "notification_id": Id,
    "address": Text,
    "channel_name": Text,
    "provider_id": Text,
    "asked_count": Integer,
    "status": Text,
    "error": Text,
}
_expect = Statement(
    """
    insert into receipts (notification_id, address, token, channel_name)
    select notification_id, address, token, channel_name from {rows} where true order by notification_id, address
    on conflict (notification_id, address) do update set token = excluded.token, channel_name = excluded.channel_name,
        provider_id = null, asked_count = 0, ask_at = null, status = null, error = null, reported_at = null
    """,
    rows={"notification_id": "id", "address": "text", "token": "text", "channel_name": "text"},
)
_accept = Statement(
    """
    update receipts set provider_id = u.provider_id, ask_at = u.ask_at
    from {rows} where receipts.notification_id = u.notification_id and receipts.address = u.address
    """,
    rows={"notification_id": "id", "address": "text", "provider_id": "text", "ask_at": "moment"},
)
_by_token = Statement(
    f"select {_COLUMNS} from receipts where token = :token and channel_name = :channel", result=_TYPES
)
_due = Statement(
    f"""
    select {_COLUMNS} from receipts where ask_at is not null and ask_at <= {{now}}
    order by ask_at limit :limit {{locked}}
    """,
    result=_TYPES,
)
_ask_later = Statement(
    """
    update receipts set ask_at = u.ask_at, asked_count = u.asked_count
    from {rows} where receipts.notification_id = u.notification_id and receipts.address = u.address
    """,
    rows={"notification_id": "id", "address": "text", "ask_at": "moment", "asked_count": "int"},
)
# The first final report counts.
_report = Statement(
    """
    update receipts set status = u.status, error = u.error, reported_at = {now}, ask_at = null
    from {rows} where receipts.notification_id = u.notification_id and receipts.address = u.address
        and receipts.reported_at is null and (receipts.provider_id is null or u.provider_id = ''
            or receipts.provider_id = u.provider_id)
    """,
    rows={
        "notification_id": "id",
        "address": "text",
        "provider_id": "text",
        "status": "text",
        "error": "text",
    },
)
_reported = Statement(
    f"select {_COLUMNS} from receipts where reported_at is not null order by reported_at limit :limit {{locked}}",
    result=_TYPES,
)
_settle = Statement(
    """
    update receipts set reported_at = null, ask_at = null
    from {rows} where receipts.notification_id = u.notification_id and receipts.address = u.address
    """,
    rows={"notification_id": "id", "address": "text"},
)


def expect(conn: Connection, targets: Collection[tuple[str, str, str, str]]) -> None:
    """Expect receipts of an attempt: (notification id, address, token, channel). Earlier tokens become invalid."""
    _expect.run(conn, list(targets))


def accept(conn: Connection, accepted: Collection[tuple[str, str, str | None, datetime]]) -> None:
    """A provider has accepted targets: (notification id, address, provider id, time). Polling begins."""
    _accept.run(conn, [(i, address, provider_id, at + FIRST_ASK) for i, address, provider_id, at in accepted])


def by_token(conn: Connection, channel_name: str, token: str) -> OpenReceipt | None:
    """The target that a URL of this channel belongs to."""
    found = _by_token.run(conn, channel=channel_name, token=token)
    return _of(found[0]) if found else None


def take_due(conn: Connection, limit: int, at: datetime, *, now: datetime | None) -> list[OpenReceipt]:
    """The targets to ask for now; each is asked for again after a longer time."""
    found = [_of(row) for row in _due.run(conn, limit=limit, now=now)]
    if found:
        _ask_later.run(
            conn,
            [(r.notification_id, r.address, at + next_ask(r.asked_count + 1), r.asked_count + 1) for r in found],
        )
    return found


def report(conn: Connection, reports: Collection[tuple[OpenReceipt, Receipt]], *, now: datetime | None) -> None:
    """Store final reports, to be applied when no attempt is in progress."""
    rows = [
        (
            r.notification_id,
            r.address,
            receipt.provider_id,
            receipt.status.value,
            receipt.error and truncate(receipt.error),
        )
        for r, receipt in reports
        if receipt.status is not ReceiptStatus.IN_TRANSIT
    ]
    if rows:
        _report.run(conn, rows, now=now)


def reported(conn: Connection, limit: int) -> list[OpenReceipt]:
    """Reports that are not applied yet, locked."""
    return [_of(row) for row in _reported.run(conn, limit=limit)]


def settle(conn: Connection, targets: Sequence[OpenReceipt]) -> None:
    """The reports on these targets were applied, or came too late."""
    if targets:
        _settle.run(conn, [(r.notification_id, r.address) for r in targets])


def _of(row: Any) -> OpenReceipt:
    receipt = None
    if row.status is not None:
        receipt = Receipt(provider_id=row.provider_id or "", status=ReceiptStatus(row.status), error=row.error)
    return OpenReceipt(row.notification_id, row.address, row.channel_name, row.provider_id, row.asked_count, receipt)
