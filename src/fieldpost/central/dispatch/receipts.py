"""Receipts: tokens for an attempt, polling of providers, and applying what they report.

Every node polls: a due target is taken with its next time already written, so that no two nodes ask for it at once.
Polling is not an attempt. A report is applied when its row is not claimed; one for a row that has ended, or for a
target that is settled, is audited as late and changes nothing.
"""

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import quote

import structlog
from sqlalchemy import Connection

from fieldpost.central.secrets.keyring import Keyring, SecretUnreadable
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit, lists, receipts, records
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.central.store.notifications.receipts import OpenReceipt
from fieldpost.core.audit import SYSTEM, AuditKind, AuditStatus
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.delivery.receipt import Receipt, Receipts
from fieldpost.core.delivery.routing import DeliveryPath, PathDefaults, resolve
from fieldpost.core.delivery.settling import by_receipts
from fieldpost.core.errors import Unavailable
from fieldpost.core.ids import new_ids
from fieldpost.core.notification import Notification, Status, TargetStatus

log = structlog.get_logger()

PATH = "/receipts/v1"
TOKEN_BYTES = 24
BATCH = 200
ASK_MAX = 50
"""How many ids one call of an adapter asks for."""


class ReceiptKeeper:
    """The receipts as one node handles them. Without an adapter that has receipts it asks nothing."""

    def __init__(
        self,
        store: Store,
        node_id: str,
        adapters: Mapping[str, Adapter],
        keyring: Keyring,
        defaults: PathDefaults,
        rng: random.Random,
        public_url: str,
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._adapters = adapters
        self._keyring = keyring
        self._defaults = defaults
        self._rng = rng
        self.public_url = public_url.rstrip("/")
        self._is_used = any(isinstance(adapter, Receipts) for adapter in adapters.values())
        self._asking: asyncio.Task[None] | None = None

    async def expect(self, claimed: Sequence[tuple[Claimed, object]]) -> dict[str, dict[str, str]]:
        """Prepare attempts on paths with receipts: the URL for each due target, by notification; empty without a public
        URL."""
        rows = [
            (one.notification.notification_id, target.address, secrets.token_urlsafe(TOKEN_BYTES), path.via.name)
            for one, path in claimed
            if isinstance(path, DeliveryPath) and path.has_receipts
            for target in one.notification.targets
            if target.status is TargetStatus.DUE
        ]
        if not rows:
            return {}
        await self._store.write(receipts.expect, rows)
        urls: dict[str, dict[str, str]] = {}
        for notification_id, address, token, channel in rows if self.public_url else ():
            url = f"{self.public_url}{PATH}/{quote(channel, safe='')}/{token}"
            urls.setdefault(notification_id, {})[address] = url
        return urls

    async def tend(self) -> None:
        """Apply reports, and poll beside the sweeps, one round at a time."""
        if not self._is_used:
            return
        await self.apply()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_safely())

    async def idle(self) -> None:
        """Wait until the round of polling has ended."""
        if self._asking is not None:
            await asyncio.gather(self._asking, return_exceptions=True)

    async def close(self) -> None:
        """End polling; an unanswered question is asked again later."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def apply(self) -> int:
        """Apply the reports on rows that no node has claimed; how many."""
        entropy, chances = secrets.token_bytes(10 * BATCH), [self._rng.random() for _ in range(BATCH)]
        return await self._store.write(_apply, self._node_id, self._defaults, entropy, chances, now=self._store.now())

    async def _ask_safely(self) -> None:
        try:
            await self.ask()
        except Unavailable as error:
            log.error("receipts.failed", error=error.message)
        except Exception:
            log.exception("receipts.faulted")

    async def ask(self) -> None:
        """Poll the providers of targets whose time has come."""
        due = await self._store.write(_take_due, now=self._store.now())
        by_channel: dict[str, list[OpenReceipt]] = {}
        for one in due:
            by_channel.setdefault(one.channel_name, []).append(one)
        for name, found in by_channel.items():
            reports = await self._ask_channel(name, found)
            if reports:
                await self._store.write(receipts.report, reports, now=self._store.now())

    async def _ask_channel(self, name: str, found: Sequence[OpenReceipt]) -> list[tuple[OpenReceipt, Receipt]]:
        channel = await self._store.read(lists.get_channel, name)
        adapter = self._adapters.get(channel.type) if channel is not None else None
        if channel is None or adapter is None or not isinstance(adapter, Receipts) or not adapter.can_ask:
            return []
        by_id = {one.provider_id: one for one in found if one.provider_id}
        ids = list(by_id)
        reports = []
        try:
            settings = self._keyring.open_owner(channel).settings
            for start in range(0, len(ids), ASK_MAX):
                async with asyncio.timeout(adapter.deadline_s):
                    answers = await adapter.ask(settings, ids[start : start + ASK_MAX])
                reports += [(by_id[answer.provider_id], answer) for answer in answers if answer.provider_id in by_id]
        except (SecretUnreadable, TimeoutError) as error:
            log.warning("receipts.unanswered", channel=name, error=str(error))
        except Exception:
            log.exception("receipts.faulted", channel=name)
        return reports


def _take_due(conn: Connection, *, now: datetime | None) -> list[OpenReceipt]:
    return receipts.take_due(conn, BATCH, database_time(conn, now), now=now)


def _apply(
    conn: Connection,
    node_id: str,
    defaults: PathDefaults,
    entropy: bytes,
    chances: Sequence[float],
    *,
    now: datetime | None,
) -> int:
    """One transaction: rows, targets and audit entries by the reports on them."""
    by_row: dict[str, list[OpenReceipt]] = {}
    for one in receipts.reported(conn, BATCH):
        by_row.setdefault(one.notification_id, []).append(one)
    if not by_row:
        return 0
    at = database_time(conn, now)
    rows = records.without_bodies(conn, list(by_row))
    directory = lists.directory_of(conn, {n.delivery_key for n in rows.values()})
    entries, done = [], []
    for n, event_id, chance in zip(rows.values(), new_ids(at, entropy), chances, strict=False):
        reports = {one.address: one.receipt for one in by_row[n.notification_id] if one.receipt is not None}
        path = resolve(directory, n.delivery_key, defaults)
        transition = None
        if not n.status.is_terminal and isinstance(path, DeliveryPath):
            if any(t.status is TargetStatus.DUE and t.address in reports for t in n.targets):
                continue  # the end of the attempt is not written yet
            transition = by_receipts(n, reports, path.policy, at, chance)
            if transition is not None and not records.change(conn, n, transition, at):
                continue  # a node has claimed the row: later
        done += by_row[n.notification_id]
        entries.append(_entry(event_id, n, transition, reports, at))
    audit.add_for_notifications(conn, node_id, entries)
    receipts.settle(conn, done)
    return len(done)


def _entry(
    event_id: str, n: Notification, transition: Transition | None, reports: Mapping[str, Receipt], at: datetime
) -> audit.NotificationEntry:
    words = ", ".join(f"{address}: {receipt.status.value}" for address, receipt in sorted(reports.items()))
    status, text = AuditStatus.SKIPPED, f"late receipt, nothing changed: {words}"
    if transition is not None:
        is_terminal = transition.status.is_terminal
        status = AuditStatus(transition.status.value) if is_terminal else AuditStatus.ATTEMPTED
        text = str(transition.last_error) if transition.status is Status.PARKED else f"receipt: {words}"
    error, reply = (text, None) if status in (AuditStatus.PARKED, AuditStatus.SKIPPED) else (None, text)
    return audit.NotificationEntry(
        event_id, n.notification_id, at, AuditKind.NOTIFY_DELIVER, status, SYSTEM, None, error, reply
    )
