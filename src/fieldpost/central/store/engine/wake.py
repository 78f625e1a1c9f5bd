"""Wake-ups: hints that rows became due or commands are waiting. Polling finds what a lost wake-up missed.

Within a process a wake-up is an event per topic. Across nodes on PostgreSQL it is NOTIFY, coalesced: at most one
notification per topic and interval leaves a node, however many transactions commit, so that ingest never pays for it.
"""

import asyncio
import contextlib
from enum import StrEnum
from typing import Protocol

import structlog

from fieldpost.central.store.engine.postgres_servers import PostgresServers
from fieldpost.clock import SystemClock

log = structlog.get_logger()

COALESCE_S = 0.05
RECONNECT_S = 5.0
ANSWER_S = 10.0
"""After this time without an answer the server counts as gone, even if its connection looks open."""


class WakeTopic(StrEnum):
    """Each topic has one waiting loop in a process."""

    DUE = "due"
    """Due notifications, for the dispatcher."""
    COMMANDS = "commands"
    """Open intents, for the sender of commands."""
    BULK_ACTIONS = "bulk_actions"
    """Bulk actions started on this node."""
    SITE_TOKENS = "site_tokens"
    """Revoked or replaced tokens of sites, for their open connections."""


class Wake(Protocol):
    """Set after a commit that gives another loop work, and waited for by that loop."""

    def set(self, topic: WakeTopic = WakeTopic.DUE) -> None:
        """Wake the loop on every node; call it on the event loop only."""

    def nudge(self, topic: WakeTopic = WakeTopic.DUE) -> None:
        """Wake the loop in this process."""

    async def wait(self, timeout_s: float, topic: WakeTopic = WakeTopic.DUE) -> bool:
        """True as soon as it was set since the last wait, False after the timeout."""

    async def listen(self) -> None:
        """Receive the wake-ups of other nodes until cancelled; returns at once where there are no other nodes."""

    async def close(self) -> None: ...


class LocalWake:
    """Wake-ups within this process."""

    def __init__(self) -> None:
        self._events = {topic: asyncio.Event() for topic in WakeTopic}

    def set(self, topic: WakeTopic = WakeTopic.DUE) -> None:
        self._events[topic].set()

    def nudge(self, topic: WakeTopic = WakeTopic.DUE) -> None:
        self._events[topic].set()

    async def wait(self, timeout_s: float, topic: WakeTopic = WakeTopic.DUE) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._events[topic].wait()
        except TimeoutError:
            return False
        self._events[topic].clear()
        return True

    async def listen(self) -> None:
        return

    async def close(self) -> None:
        return


class PostgresWake(LocalWake):
    """Wake-ups within this process, and over NOTIFY to the other nodes."""

    CHANNEL = "fieldpost_due"

    def __init__(self, servers: PostgresServers) -> None:
        super().__init__()
        self._servers = servers
        self._pending: set[WakeTopic] = set()
        self._has_pending = asyncio.Event()
        self._clock = SystemClock()

    def set(self, topic: WakeTopic = WakeTopic.DUE) -> None:
        self.nudge(topic)
        self._pending.add(topic)
        self._has_pending.set()

    async def listen(self) -> None:
        while True:
            try:
                await self._converse()
            except Exception as error:
                # Any error: if a server ends during a conversation, the driver raises errors of its state machine.
                log.warning("wake.lost", error=str(error) or type(error).__name__)
            await self._clock.sleep(RECONNECT_S)

    async def _converse(self) -> None:
        connection = await self._servers.connect()
        try:
            await connection.add_listener(self.CHANNEL, lambda *received: self._hear(str(received[-1])))
            # Commits of other nodes before this connection sent no wake-up here.
            self._hear("")
            while not connection.is_closed():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RECONNECT_S):
                        await self._has_pending.wait()
                if self._pending:
                    topics, self._pending = self._pending, set()
                    self._has_pending.clear()
                    for topic in topics:
                        await connection.execute(f"notify {self.CHANNEL}, '{topic.value}'", timeout=ANSWER_S)
                    await self._clock.sleep(COALESCE_S)
        finally:
            connection.terminate()

    def _hear(self, payload: str) -> None:
        """Wake the loop of this topic, or all loops if the payload names none."""
        for topic in WakeTopic:
            if payload in (topic.value, ""):
                self.nudge(topic)
