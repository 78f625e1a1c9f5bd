"""The sites of `fleet`, many in one process: `python -m bench.fleet_sites light|whole URL FOLDER < TOKENS`.

A light site has the real link of an agent (control and data connection) and nothing on disk: it reports health, answers
that it has no calls, and occasionally sends a notification. A whole site runs the parts of an agent for notifications:
a folder, a buffer on disk, the forwarder, and the control connection with its reports. All intervals are the defaults.

Tokens are read from stdin, one per line, up to an empty line; then commands, each answered by one line:

    say N       every site has N notifications to send
    fill N      every whole site has N notifications in its buffer and does not forward yet
    forward     the whole sites start to forward
"""

import asyncio
import resource
import signal
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Protocol

import msgspec
import uvloop

import fieldpost
from bench.harness import log_to_nowhere
from bench.material import items
from fieldpost.clock import SystemClock
from fieldpost.core.errors import FieldpostError, Unavailable
from fieldpost.core.sites.forwarding import NotNow
from fieldpost.core.sites.message import CENTRAL, Category
from fieldpost.core.sites.message import Message as Buffered
from fieldpost.core.times import to_microseconds, to_text
from fieldpost.link.client import LinkClient
from fieldpost.link.control import ControlClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Health, LinkMessage, Reconcile, ReconcileAnswer
from fieldpost.link.session import LinkSession
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.config.folder import create_folder
from fieldpost.site.config.options import ForwardOptions, ReportOptions
from fieldpost.site.forwarding.forwarder import Forwarder
from fieldpost.site.reporting.control import Control

CLOCK = SystemClock()
FILES_MAX = 20_000
_FILL = """
INSERT INTO messages (message_id, category, target, payload, created_at)
VALUES (?, 'notification', 'central', ?, ?)
"""


class Site(Protocol):
    async def run(self, stopping: asyncio.Event) -> None: ...
    def say(self, count: int) -> None: ...
    async def pause(self) -> None: ...
    def forward(self) -> None: ...


class LightSite:
    """The link of a light site."""

    def __init__(self, url: str, token: str, number: int) -> None:
        def endpoint() -> Endpoint:
            return Endpoint(url, token)

        self._random = Random(number)
        session = LinkSession()
        self._carrier = CentralCarrier(LinkClient(endpoint, session, CLOCK), session)
        self._control = ControlClient(endpoint, self._handle, CLOCK, self._random)
        self._interval_s = ForwardOptions().interval_s
        self._report_options = ReportOptions()
        self._waiting: list[Buffered] = []
        self._has_some = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        await asyncio.gather(self._control.run(stopping), self._report(), self._forward())

    def say(self, count: int) -> None:
        for item in items(count):
            payload = msgspec.json.encode(item).decode()
            self._waiting.append(
                Buffered(
                    sequence=0,
                    message_id=item.notification_id,
                    category=Category.NOTIFICATION,
                    target=CENTRAL,
                    payload=payload,
                    created_at=datetime.now(UTC),
                )
            )
        self._has_some.set()

    async def pause(self) -> None:
        return

    def forward(self) -> None:
        return

    async def _handle(self, message: LinkMessage) -> LinkMessage | None:
        if not isinstance(message, Reconcile):
            return None
        now = to_text(CLOCK.now())
        return ReconcileAnswer(incarnation="light", after=message.after, until=0, high=0, sent_at=now, rows=())

    async def _report(self) -> None:
        """Like `site/reporting/control.py`: when the connection opens, then at every interval."""
        options = self._report_options
        due = 0.0
        while True:
            if not self._control.is_connected:
                due = 0.0
            elif CLOCK.monotonic() >= due:
                due = CLOCK.monotonic() + options.health_interval_s
                report = Health(sent_at=to_text(CLOCK.now()), version=fieldpost.__version__, backlog={})
                with suppress(Unavailable):
                    await self._control.send(report)
            await CLOCK.sleep(options.poll_s)

    async def _forward(self) -> None:
        while True:
            await self._has_some.wait()
            try:
                answers = await self._carrier.carry(self._waiting)
            except FieldpostError:
                answers = [NotNow("")] * len(self._waiting)
            self._waiting = [m for m, a in zip(self._waiting, answers, strict=True) if isinstance(a, NotNow)]
            if self._waiting:
                await CLOCK.sleep(self._interval_s)
            else:
                self._has_some.clear()


class WholeSite:
    """The parts of an agent that handle notifications."""

    def __init__(self, path: Path, name: str, url: str, token: str, number: int) -> None:
        folder = create_folder(path, name, url, token)
        random = Random(number)
        session = LinkSession(folder.forward.batch_items, folder.forward.batch_bytes)
        carrier = CentralCarrier(LinkClient(folder.endpoint, session, CLOCK), session)
        self._buffer = Buffer(folder.buffer_path, folder.buffer, folder.events)
        self._forwarder = Forwarder(self._buffer, carrier, folder.forward, CLOCK, random)
        self._control = Control(folder, self._buffer, lambda: self._forwarder.health, CLOCK, random)
        self._paused = asyncio.Event()
        self._forwarding: asyncio.Task[None] | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        self.forward()
        await self._control.run(stopping)

    def say(self, count: int) -> None:
        now = to_microseconds(datetime.now(UTC))
        rows = [(item.notification_id, msgspec.json.encode(item).decode(), now) for item in items(count)]
        self._buffer.write(lambda cursor: cursor.executemany(_FILL, rows))

    async def pause(self) -> None:
        self._paused.set()
        if self._forwarding is not None:
            await self._forwarding

    def forward(self) -> None:
        self._paused.clear()
        self._forwarding = asyncio.create_task(self._forwarder.run(self._paused))


async def main() -> None:
    kind, url, folder = sys.argv[1:]
    log_to_nowhere()
    resource.setrlimit(resource.RLIMIT_NOFILE, (_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print("ready", flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    sites: list[Site] = []
    while name_and_token := (await reader.readline()).decode().split():
        name, token = name_and_token
        number = len(sites)
        light = kind == "light"
        sites.append(
            LightSite(url, token, number) if light else WholeSite(Path(folder) / name, name, url, token, number)
        )
    print("made", flush=True)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    running = [asyncio.create_task(site.run(stopping)) for site in sites]
    commands = asyncio.create_task(_obey(reader, sites))
    await stopping.wait()
    for task in (commands, *running):
        task.cancel()


async def _obey(reader: asyncio.StreamReader, sites: list[Site]) -> None:
    while line := (await reader.readline()).decode().split():
        match line:
            case ["say", count]:
                for site in sites:
                    site.say(int(count))
            case ["fill", count]:
                await asyncio.gather(*(site.pause() for site in sites))
                for site in sites:
                    site.say(int(count))
            case ["forward"]:
                for site in sites:
                    site.forward()
        print("done", flush=True)


def _files() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)


if __name__ == "__main__":
    uvloop.run(main())
