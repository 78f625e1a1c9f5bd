"""The relay's own records: its tasks, its health, the number of open rows, and the purge of old rows."""

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError
from fieldpost.core.ids import new_id
from fieldpost.core.text import truncate
from fieldpost.outbox.relay.central import RelayClient
from fieldpost.outbox.relay.database import RelayDatabase
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.transactions import OutboxTransactions
from fieldpost.outbox.tables import HEALTH_LOG, HISTORY, OUTBOX

log = logging.getLogger("fieldpost.relay")

REPORT_EVERY_S = 60.0
COUNT_EVERY_S = 5.0
"""Counting a million open rows takes a while, so batches of the next seconds repeat the number."""
TASK_EVERY_S = 10.0
"""A task that goes well is written this often."""
PURGE_BATCH = 1000
DAY_S = 86400.0
MESSAGE_BYTES_MAX = 2000


@dataclass(slots=True)
class _TaskState:
    status: str = ""
    written_at: float = float("-inf")


class RelayRecorder:
    """Writes `background_tasks` and `system_health_logs`, each change once, and never fails because of them."""

    report_every_s = REPORT_EVERY_S

    def __init__(
        self,
        database: RelayDatabase,
        transactions: OutboxTransactions,
        client: RelayClient,
        options: RelayOptions,
        clock: Clock,
    ) -> None:
        self._database = database
        self._transactions = transactions
        self._client = client
        self._options = options
        self._clock = clock
        self._tasks: dict[str, _TaskState] = {}
        self._failures: dict[str, str] = {}
        """The present failure of each task, by its code."""
        self._health: str | None = None
        self._health_lock = asyncio.Lock()
        self._counted_at = float("-inf")
        self._outbox: Mapping[str, float] = {"open_count": 0, "oldest_age_s": 0.0}

    async def outbox(self) -> Mapping[str, float]:
        """The number and age of open rows, counted a few seconds ago at most."""
        if self._clock.monotonic() - self._counted_at >= COUNT_EVERY_S:
            try:
                count, age_s = await self._database.run(self._transactions.open_rows, is_read=True)
            except FieldpostError:
                return self._outbox
            self._outbox = {"open_count": count, "oldest_age_s": age_s}
            self._counted_at = self._clock.monotonic()
        return self._outbox

    async def report(self) -> None:
        """Report the open rows to central."""
        await self._client.report(await self.outbox())

    async def purge(self) -> None:
        """Delete rows past their retention, in batches."""
        options = self._options
        kept = {OUTBOX: options.sent_days}
        if options.history:
            kept[HISTORY] = options.history_days
        if options.health_log:
            kept[HEALTH_LOG] = options.history_days
        for table, days in kept.items():
            count = PURGE_BATCH
            while count == PURGE_BATCH:
                count = await self._purge_batch(table, days * DAY_S)

    async def ran(self, name: str, next_s: float) -> None:
        """A task went well and runs again in this many seconds."""
        self._failures.pop(name, None)
        await self._save_task(name, "ok", next_s, None)
        await self._save_health()

    async def failed(self, name: str, code: str, message: str, next_s: float) -> None:
        """A task failed and is tried again in this many seconds."""
        if self._failures.get(name) != f"{code}: {message}":
            log.warning("relay.task_failed task=%s code=%s reason=%s", name, code, message)
        self._failures[name] = f"{code}: {message}"
        await self._save_task(name, "failed", next_s, f"{code}: {message}")
        await self._save_health()

    async def _purge_batch(self, table: str, keep_s: float) -> int:
        return await self._database.run(lambda: self._transactions.purge(table, keep_s, PURGE_BATCH))

    async def _save_task(self, name: str, status: str, next_s: float, error: str | None) -> None:
        if not self._options.tasks:
            return
        state = self._tasks.setdefault(name, _TaskState())
        now = self._clock.monotonic()
        if state.status == status and now - state.written_at < TASK_EVERY_S:
            return
        text = truncate(error, MESSAGE_BYTES_MAX) if error else None
        try:
            await self._database.run(lambda: self._transactions.save_task(f"relay.{name}", status, next_s, text))
        except FieldpostError as failure:
            log.debug("relay.task_not_written reason=%s", failure)
            return
        state.status, state.written_at = status, now

    async def _save_health(self) -> None:
        """Log the relay's health if it changed: the codes of the tasks that fail now."""
        async with self._health_lock:
            await self._log_health()

    async def _log_health(self) -> None:
        codes = sorted({failure.partition(":")[0] for failure in self._failures.values()})
        health = ", ".join(codes)
        if not self._options.health_log or health == self._health:
            return
        status, message = ("failing", "; ".join(sorted(set(self._failures.values())))) if codes else ("ok", "running")
        log_id = new_id(self._clock.now(), os.urandom(10))
        text = truncate(message, MESSAGE_BYTES_MAX)
        try:
            await self._database.run(lambda: self._transactions.add_health(log_id, "relay", status, text))
        except FieldpostError as failure:
            log.debug("relay.health_not_written reason=%s", failure)
            return
        self._health = health
