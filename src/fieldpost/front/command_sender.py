"""What this node has to say to the sites whose control connections it holds: open intents, and reconciliation.

Theory of operation. The store holds what is open; this module holds nothing that matters. A sweep looks for which of
the connected sites something is open or due, and speaks to each in a task of its own, so that one that takes nothing
keeps nobody else waiting. An intent is sent once on a connection, and again on the next one, or after a while, until
the site has answered: a site does a command once, however often it comes. Wake-ups are a hint, the sweep every second
is the truth, since an intent may have been given on any node.
"""

import asyncio
from collections.abc import Sequence

import structlog

from fieldpost.central.ingest.mirror import CallMirrors
from fieldpost.central.operate.intents import Intents
from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError, Unavailable
from fieldpost.core.sites.intent import Intent, IntentKind, IntentOutcome
from fieldpost.front.connections import ControlConnections, ControlLink
from fieldpost.link.messages import CommandResult

log = structlog.get_logger()

INTERVAL_S = 1.0
AGAIN_S = 60.0
"""A command that was not answered for so long is sent again on the same connection."""
AT_ONCE = 16
"""So many sites are spoken to at once."""
INTENTS_MAX = 100
"""So many intents are taken up for one site at a time."""
EXPIRE_EVERY_S = 30.0


class CommandSender:
    """One for a node."""

    def __init__(self, links: ControlConnections, intents: Intents, mirrors: CallMirrors, clock: Clock) -> None:
        self._links = links
        self._intents = intents
        self._mirrors = mirrors
        self._clock = clock
        self._wake = asyncio.Event()
        self._due: dict[str, float] = {}
        """When the next reconciliation of each connected site is due."""
        self._sent: dict[str, tuple[ControlLink, float]] = {}
        """On which connection and when each open intent was sent last."""
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._expired_at = -EXPIRE_EVERY_S

    def connected(self, site: str) -> None:
        """The site is there, perhaps after a long time: what it missed is due."""
        self._due[site] = self._clock.monotonic()
        self._wake.set()

    def disconnected(self, site: str) -> None:
        if self._links.of(site) is None:
            self._due.pop(site, None)

    def wake(self) -> None:
        """An intent was given on this node."""
        self._wake.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        try:
            while True:
                try:
                    await self.sweep()
                except Unavailable as error:
                    log.warning("command_sender.failed", error=error.message)
                except Exception:
                    log.exception("command_sender.faulted")
                await self._rest()
        finally:
            for task in self._busy.values():
                task.cancel()

    async def sweep(self) -> None:
        """Begin to speak to every connected site for which there is something, and to which nobody speaks already."""
        now = self._clock.monotonic()
        if now - self._expired_at >= EXPIRE_EVERY_S:
            self._expired_at = now
            await self._intents.expire()
        awaited = await self._intents.awaited()
        self._forget(awaited)
        for site in self._links.sites:
            is_due = self._due.setdefault(site, now) <= now
            if (is_due or site in awaited) and site not in self._busy:
                speaking = self._speak(site, is_due, is_awaited=site in awaited)
                self._busy[site] = asyncio.create_task(speaking, name=f"command_sender-{site}")

    async def settled(self) -> None:
        """Return when nobody is being spoken to."""
        while self._busy:
            await asyncio.wait(list(self._busy.values()))

    async def _speak(self, site: str, is_due: bool, *, is_awaited: bool) -> None:
        try:
            async with self._room:
                link = self._links.of(site)
                if link is None:
                    return
                given = await self._intents.open_of([site], INTENTS_MAX) if is_awaited else []
                await self._send(link, [intent for intent in given if self._is_unsent(intent, link)])
                if is_due:
                    self._due[site] = self._clock.monotonic() + self._mirrors.options.reconcile_interval_s
                    await link.send(await self._mirrors.question(site))
        except FieldpostError as error:
            # The connection ended, or the store is away: the next sweep, or the next connection, goes on.
            log.info("command_sender.put_off", site=site, error=error.message)
        except Exception:
            log.exception("command_sender.faulted", site=site)
        finally:
            self._busy.pop(site, None)

    async def _send(self, link: ControlLink, given: Sequence[Intent]) -> None:
        if not given:
            return
        commands = {command.intent_id: command for command in await self._intents.to_send(given)}
        for intent in given:
            if intent.intent_id not in commands:
                continue
            self._sent[intent.intent_id] = link, self._clock.monotonic()
            if intent.kind is IntentKind.RECONCILE:
                await self._reread(intent)
            else:
                await link.send(commands[intent.intent_id])

    async def _reread(self, intent: Intent) -> None:
        """This one is central's own to do: the mirror is marked, and asked for at once."""
        await self._mirrors.reread(intent.site)
        self._due[intent.site] = self._clock.monotonic()
        detail = "the site's calls are being read anew from the beginning"
        await self._intents.settle(intent.site, CommandResult(intent.intent_id, IntentOutcome.APPLIED.value, detail))

    def _is_unsent(self, intent: Intent, link: ControlLink) -> bool:
        on, at = self._sent.get(intent.intent_id, (None, 0.0))
        return on is not link or self._clock.monotonic() - at >= AGAIN_S

    def _forget(self, awaited: dict[str, int]) -> None:
        gone = [intent_id for intent_id, (link, _) in self._sent.items() if link.is_over or link.site not in awaited]
        for intent_id in gone:
            del self._sent[intent_id]

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(INTERVAL_S):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
