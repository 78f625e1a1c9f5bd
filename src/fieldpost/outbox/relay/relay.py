"""The relay: publishes the rows of an outbox to central and follows their results.

Theory of operation. A row is written by the application, in the transaction that changes its data. From there on:

    claim      due rows become PROCESSING, with owner, token and lease; one short transaction
    publish    POST /api/v1/events, no transaction open; the answer has a verdict for each row
    record     the verdicts, by compare-and-set on owner and token; another short transaction
    follow     central's results become SENT, FAILED or TEMPLATE_NOT_FOUND, and rows of the history

Invariants. A row is never lost: until it is recorded as published it is claimable, now or after its lease. It is never
two events: its id is the event's id, and central answers a repetition with `duplicate`. A relay that was frozen past
its lease changes no row that another one has claimed, because the token has grown.

Failures. Central away: claims are given back and the relay pauses, so rows do not change. A publish without an answer
is FAILED and due again by the policy. A relay killed between publishing and recording leaves a PROCESSING row, which
another relay publishes again after the lease. Without the database the relay waits; it never ends because of
it. Hints only shorten the wait: polling finds every row.

Several relays share an outbox without knowing each other. The number of rows in memory is bounded by the batches in
flight, however many rows are open.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import ModuleType

from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import FieldpostError, Unavailable
from fieldpost.core.events.relaying import NotPublished, PublishVerdict, decide_row
from fieldpost.core.ids import new_id
from fieldpost.outbox.relay.central import CentralUnreachable, RelayClient, RequestRefused, Unanswered
from fieldpost.outbox.relay.database import RelayDatabase, SqlTransaction, parse_database
from fieldpost.outbox.relay.following import ResultFollower
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.recorder import RelayRecorder
from fieldpost.outbox.relay.transactions import ClaimedRow, OutboxTransactions
from fieldpost.outbox.tables import OutboxDatabase

log = logging.getLogger("fieldpost.relay")

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 30.0
CLAIM_BYTES_MAX = 4 * 1024 * 1024
RECORD_ATTEMPTS = 5
PURGE_EVERY_S = 60.0


def open_database(options: RelayOptions, sqlite: ModuleType | None = None) -> RelayDatabase:
    """The application's database by its URL. Raises ConfigError, with the install line if its driver is missing."""
    target = parse_database(options.database)
    match target.kind:
        case OutboxDatabase.POSTGRESQL:
            from fieldpost.outbox.relay.postgresql import PostgresqlOutbox

            return PostgresqlOutbox(target, listen=options.hint)
        case OutboxDatabase.MARIADB:
            from fieldpost.outbox.relay.mariadb import MariadbOutbox

            return MariadbOutbox(target)
        case OutboxDatabase.SQLITE:
            from fieldpost.outbox.relay.sqlite import SqliteOutbox

            return SqliteOutbox(target, sqlite)


class RelayLoop:
    """One relay on its event loop. Its public face is `Relay` in `background.py`."""

    def __init__(self, options: RelayOptions, *, clock: Clock | None = None, sqlite: ModuleType | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._random = random.Random()
        self.owner = new_id(self._clock.now(), os.urandom(10))
        self._database = open_database(options, sqlite)
        self._transactions = OutboxTransactions(self._database.kind, self.owner)
        self._client = RelayClient(options)
        self._follower = ResultFollower(self._database, self._transactions, self._client, options)
        self._recorder = RelayRecorder(self._database, self._transactions, self._client, options, self._clock)
        self._pause_s = 0.0
        self._paused_until = 0.0
        self._working: dict[asyncio.Task[None], set[str]] = {}
        """The batches in flight, with their events."""
        self._stopping = asyncio.Event()

    async def run(self, stopping: asyncio.Event, on_started: Callable[[], None] = lambda: None) -> None:
        """Run until `stopping` is set. Raises ConfigError at the start for settings or tables that cannot work.

        The relay also starts without database or central.
        """
        self._stopping = stopping
        try:
            self._options.endpoint()
            with suppress(Unavailable):
                await self._database.run(self._transactions.check, is_read=True)
            on_started()
            log.info("relay.started owner=%s database=%s", self.owner, self._database.kind.value)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publish_loop())
                group.create_task(self._repeat("follow", self._options.follow_s, self._follower.sweep))
                group.create_task(self._repeat("purge", PURGE_EVERY_S, self._recorder.purge))
                group.create_task(self._repeat("report", self._recorder.report_every_s, self._recorder.report))
        finally:
            await self._client.close()
            await self._database.close()
            log.info("relay.stopped owner=%s", self.owner)

    def wake(self) -> None:
        """Look for new rows now. From any thread."""
        self._database.wake()

    async def _publish_loop(self) -> None:
        try:
            while not self._stopping.is_set():
                await self._wait_until_ready()
                if self._stopping.is_set():
                    break
                is_idle = not self._working
                rows = await self._claim()
                if rows:
                    task = asyncio.create_task(self._publish(rows))
                    self._working[task] = {row.event_id for row in rows}
                    task.add_done_callback(lambda done: self._working.pop(done, None))
                    continue
                if is_idle and rows is not None:
                    # With a request under way, having no row to claim says nothing about publishing.
                    await self._recorder.ran("publish", self._options.poll_s)
                await self._until_stopping(self._database.wait_for_hint(self._options.poll_s))
        finally:
            if self._working:
                await asyncio.wait(self._working, timeout=self._options.timeout_s)
            for task in list(self._working):
                task.cancel()

    async def _wait_until_ready(self) -> None:
        """Return when a batch may be claimed: central is not known to be away, and one more may be in flight."""
        while len(self._working) >= self._options.in_flight_max and not self._stopping.is_set():
            await self._until_stopping(asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED))
        if (wait_s := self._paused_until - self._clock.monotonic()) > 0:
            await self._until_stopping(asyncio.sleep(wait_s))

    async def _claim(self) -> list[ClaimedRow] | None:
        """The rows of the next batch; None if the database failed."""
        options, attempts = self._options, 0

        def claim() -> SqlTransaction[list[ClaimedRow]]:
            nonlocal attempts
            attempts += 1
            if attempts > 1:
                # The last attempt may have been committed, and its answer lost.
                yield from self._transactions.give_back_lost(self._in_flight())
            return (yield from self._transactions.claim(options.batch_size, CLAIM_BYTES_MAX, options.lease_s))

        try:
            # On SQLite, polling must not take the write lock.
            is_sqlite = self._database.kind is OutboxDatabase.SQLITE
            if is_sqlite and not await self._database.run(self._transactions.is_any_due, is_read=True):
                return []
            return await self._database.run(claim)
        except FieldpostError as error:
            await self._recorder.failed("publish", error.code, error.message, options.poll_s)
            await self._release_lost_claims()
            return None

    async def _release_lost_claims(self) -> None:
        """End claims whose commit succeeded without an answer: their rows need not wait for the lease."""
        with suppress(FieldpostError):
            await self._database.run(lambda: self._transactions.give_back_lost(self._in_flight()))

    def _in_flight(self) -> set[str]:
        return set().union(*self._working.values())

    async def _publish(self, rows: list[ClaimedRow]) -> None:
        began = self._clock.monotonic()

        def is_in_time() -> bool:
            # Another relay takes the rows when the lease ends; a request may take half of it.
            return self._clock.monotonic() - began < self._options.lease_s / 2 and not self._stopping.is_set()

        verdicts: list[PublishVerdict] = [PublishVerdict("later")] * len(rows)
        try:
            published = await self._client.publish(rows, await self._recorder.outbox(), is_in_time)
            verdicts = published.verdicts
            if published.unreachable is not None:
                await self._pause(published.unreachable)
            else:
                self._pause_s = 0.0
                await self._recorder.ran("publish", 0.0)
        except Exception as error:
            # A bug of ours: the rows wait by the policy, so that others get their turn.
            log.exception("relay.bug")
            verdicts = [PublishVerdict("unanswered", error=f"the relay failed: {error!r}")] * len(rows)
        finally:
            await self._record(rows, verdicts)

    async def _record(self, rows: list[ClaimedRow], verdicts: list[PublishVerdict]) -> None:
        policy = self._options.retry_policy
        changes = [
            (row, decide_row(verdict, row.retries, policy, self._random.random()))
            for row, verdict in zip(rows, verdicts, strict=True)
        ]
        for attempt in range(RECORD_ATTEMPTS):
            try:
                count = await self._database.run(lambda: self._transactions.record(changes))
            except FieldpostError as error:
                await self._recorder.failed("publish", error.code, error.message, self._options.poll_s)
                await asyncio.sleep(min(PAUSE_MAX_S, PAUSE_MIN_S * 2**attempt) * self._random.random())
                continue
            if count < len(rows):
                log.warning("relay.claims_lost count=%d owner=%s", len(rows) - count, self.owner)
            if failed := [row.event_id for row, change in changes if isinstance(change, NotPublished)]:
                log.warning("relay.not_published count=%d ids=%s", len(failed), ",".join(failed[:10]))
            return

    async def _pause(self, unreachable: CentralUnreachable) -> None:
        self._pause_s = min(PAUSE_MAX_S, max(PAUSE_MIN_S, self._pause_s * 2))
        wait_s = max(unreachable.wait_s, self._pause_s * (0.5 + self._random.random() / 2))
        self._paused_until = self._clock.monotonic() + wait_s
        await self._recorder.failed("publish", unreachable.code, unreachable.message, wait_s)

    async def _repeat(self, name: str, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work repeatedly, also after failures."""
        while not self._stopping.is_set():
            try:
                await work()
                await self._recorder.ran(name, every_s)
            except (CentralUnreachable, RequestRefused) as error:
                await self._recorder.failed(name, error.code, str(error), every_s)
            except Unanswered as error:
                await self._recorder.failed(name, "relay.unanswered", str(error), every_s)
            except FieldpostError as error:
                await self._recorder.failed(name, error.code, error.message, every_s)
            await self._until_stopping(asyncio.sleep(every_s))

    async def _until_stopping(self, waiting: Awaitable[object]) -> None:
        """Wait for this, at most until the relay is to stop."""
        wanted = asyncio.ensure_future(waiting)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((wanted, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (wanted, stopped):
                one.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(wanted, stopped, return_exceptions=True)
