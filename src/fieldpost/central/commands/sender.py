"""Sends open intents and reconciliation requests to the sites whose control connections this node has.

Theory of operation. The store holds the open intents; this module holds only hints. A sweep finds the connected sites
that have open intents or a due reconciliation and serves each in its own task, so that a site that does not read delays
no other. An intent is sent once per connection, and again on the next connection or after `RESEND_S`, until the site
answers; a site applies a command once, however often it arrives. The store wakes the sender when an intent is created
on any node; the sweep every `INTERVAL_S` finds intents whose wake-up was lost.

Of a pair, only the node with the highest epoch is served, by the central node that has its connection. After a switch
the connection is another one, so intents that the former leader has not answered are sent again, and the mirror is
reconciled with the new leader. A node that does not know yet that it leads refuses both; they are sent again soon.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from fieldpost.central.commands.connections import ControlConnections, SiteConnection
from fieldpost.central.commands.open_intents import OpenIntents
from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.engine.wake import WakeTopic
from fieldpost.central.store.sites.epochs import PairLeader
from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError
from fieldpost.core.sites.intent import Intent, IntentKind, IntentOutcome
from fieldpost.link.messages import CommandResult, LinkMessage

log = structlog.get_logger()

INTERVAL_S = 5.0
"""How long the sender waits for a wake-up at most."""
BUSY_S = 1.0
RESEND_S = 60.0
"""A command without an answer for this long is sent again on the same connection."""
SITES_AT_ONCE = 16
INTENTS_MAX = 100
"""How many intents of one site a sweep sends."""
EXPIRE_EVERY_S = 30.0
REFUSED_S = 2.0
"""A node that refused a command or a request because it does not lead is asked again after this time."""


class MirrorRequests(Protocol):
    """The reconciliation of the mirror, as far as the sender takes part in it."""

    async def question(self, site: str) -> LinkMessage:
        """The request for the changes since the cursor."""

    async def reread(self, site: str) -> None:
        """Let the next request ask for all changes."""


class CommandSender:
    """The sender of one node."""

    def __init__(self, store: Store, mirrors: MirrorRequests, reconcile_interval_s: float, clock: Clock) -> None:
        self.connections = ControlConnections()
        self.intents = OpenIntents(store)
        self._wake = store.wake
        self._mirrors = mirrors
        self._reconcile_interval_s = reconcile_interval_s
        self._clock = clock
        self._due: dict[str, float] = {}
        """When the next reconciliation of each connected site is due."""
        self._epochs: dict[str, int] = {}
        """The epoch of each connected pair in the last sweep."""
        self._sent: dict[str, tuple[SiteConnection, float]] = {}
        """On which connection and when each open intent was sent last."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(SITES_AT_ONCE)
        self._expired_at = -EXPIRE_EVERY_S

    def connected(self, site: str) -> None:
        """The site has connected, perhaps after a long time: its reconciliation is due."""
        self._due[site] = self._clock.monotonic()
        self._wake.nudge(WakeTopic.COMMANDS)

    def disconnected(self, site: str) -> None:
        if self.connections.of(site) is None:
            self._due.pop(site, None)

    def refused(self, site: str) -> None:
        """A node refused what it was sent, because it does not lead: the leader gets it again, soon."""
        again_at = self._clock.monotonic() + REFUSED_S
        self._due[site] = min(self._due.get(site, again_at), again_at)
        for intent_id, (connection, _) in self._sent.items():
            if connection.sender.site == site:
                self._sent[intent_id] = connection, again_at - RESEND_S

    async def run(self) -> None:
        """Sweep until cancelled."""
        try:
            while True:
                with logged("command_sender"):
                    await self.sweep()
                await self._wake.wait(self._wait_s(), WakeTopic.COMMANDS)
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def sweep(self) -> None:
        """Start a task for every connected site that has open intents or a due reconciliation and no task yet."""
        now = self._clock.monotonic()
        if now - self._expired_at >= EXPIRE_EVERY_S:
            self._expired_at = now
            await self.intents.expire()
        sites = self.connections.sites
        open_counts, leaders = await self.intents.counts(sites)
        self._forget(open_counts)
        for site in sites:
            connection = self._serving(site, leaders.get(site), now)
            if connection is None:
                continue
            is_due = self._due.setdefault(site, now) <= now
            if (is_due or site in open_counts) and site not in self._tasks:
                serving = self._serve(connection, is_due, has_intents=site in open_counts)
                self._tasks[site] = asyncio.create_task(serving, name=f"command_sender-{site}")
        self._epochs = {site: leader.epoch for site, leader in leaders.items()}

    async def settled(self) -> None:
        """Return when no site is being served."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _serving(self, site: str, leader: PairLeader | None, now: float) -> SiteConnection | None:
        """The connection to send on: of a pair, that of its leader. A new leader's reconciliation is due."""
        connection = self.connections.of(site, leader.node if leader else None)
        if connection is None:
            self._due.pop(site, None)
        elif leader is not None and leader.epoch != self._epochs.get(site):
            self._due[site] = now
        return connection

    async def _serve(self, connection: SiteConnection, is_due: bool, *, has_intents: bool) -> None:
        site = connection.sender.site
        try:
            async with self._slots:
                intents = await self.intents.of([site], INTENTS_MAX) if has_intents else []
                await self._send(connection, [one for one in intents if self._is_unsent(one, connection)])
                if is_due:
                    self._due[site] = self._clock.monotonic() + self._reconcile_interval_s
                    await connection.send(await self._mirrors.question(site))
        except FieldpostError as error:
            # The connection ended or the store is unavailable: the next sweep or connection continues.
            log.info("command_sender.put_off", site=site, error=error.message)
        except Exception:
            log.exception("command_sender.faulted", site=site)
        finally:
            self._tasks.pop(site, None)

    async def _send(self, connection: SiteConnection, intents: Sequence[Intent]) -> None:
        if not intents:
            return
        commands = {command.intent_id: command for command in await self.intents.to_send(intents)}
        for intent in intents:
            if intent.intent_id not in commands:
                continue
            self._sent[intent.intent_id] = connection, self._clock.monotonic()
            if intent.kind is IntentKind.RECONCILE:
                await self._reread(intent)
            else:
                await connection.send(commands[intent.intent_id])

    async def _reread(self, intent: Intent) -> None:
        """Central carries out this kind itself: it marks the mirror and makes the reconciliation due."""
        await self._mirrors.reread(intent.site)
        self._due[intent.site] = self._clock.monotonic()
        self._wake.nudge(WakeTopic.COMMANDS)
        detail = "central is reading all calls of the site again"
        await self.intents.settle(intent.site, CommandResult(intent.intent_id, IntentOutcome.APPLIED.value, detail))

    def _is_unsent(self, intent: Intent, connection: SiteConnection) -> bool:
        sent_on, sent_at = self._sent.get(intent.intent_id, (None, 0.0))
        return sent_on is not connection or self._clock.monotonic() - sent_at >= RESEND_S

    def _forget(self, open_counts: Mapping[str, int]) -> None:
        gone = [
            intent_id for intent_id, (on, _) in self._sent.items() if on.is_over or on.sender.site not in open_counts
        ]
        for intent_id in gone:
            del self._sent[intent_id]

    def _wait_s(self) -> float:
        """Until the next reconciliation is due; short while a site is being served, since a sweep skips that site."""
        next_due_s = min(self._due.values(), default=float("inf")) - self._clock.monotonic()
        return BUSY_S if self._tasks else min(INTERVAL_S, max(next_due_s, BUSY_S))
