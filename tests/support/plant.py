"""A site with an external system and a database of its own, and no central: what cached calls need."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from fieldpost import Site
from fieldpost.core.sites.message import CallRecord, Message
from fieldpost.site.buffer import event_log, event_queries
from fieldpost.site.carriers.database import DatabaseCarrier
from fieldpost.site.carriers.http import ExternalCarrier
from fieldpost.site.config.folder import read_folder
from fieldpost.site.config.options import CallOptions
from fieldpost.site.forwarding.call_forwarder import CallForwarder
from fieldpost.testing import HttpServerThread, ManualClock
from support.ports import closed_port
from support.site_folders import make_site

INTERVAL_S = 60
TIMEOUT_S = 30
"""Of a call of `erp`: longer than a test holds one up, on whatever machine."""
RETRIES_MAX = 3
DEFINITIONS = """
[external.erp]
url = "{url}"
timeout_s = {timeout_s}
retry_interval_s = {interval_s}
retries_max = {retries_max}

[external.dead]
url = "http://127.0.0.1:{closed}"
retry_interval_s = {interval_s}
retries_max = {retries_max}

[database.plant]
url = "sqlite:///plant.db"
retry_interval_s = {interval_s}
retries_max = {retries_max}
statements.count = "INSERT INTO counts (call_id, unit, n) VALUES (:call_id, :unit, :n)"
"""


class Plant:
    """The site with its external system `erp`, one that is not there, `dead`, and its database `plant`."""

    def __init__(self, folder: Path, server: HttpServerThread, interval_s: float, retries_max: int) -> None:
        self.folder = folder
        self.server = server
        self.clock = ManualClock()
        make_site(folder, f"http://127.0.0.1:{closed_port()}").close()
        self.settings = (folder / "site.toml").read_text()
        known = {"url": server.url, "closed": closed_port(), "timeout_s": TIMEOUT_S}
        self.define(DEFINITIONS.format(**known, interval_s=interval_s, retries_max=retries_max))
        self.query("CREATE TABLE counts (call_id TEXT PRIMARY KEY, unit TEXT NOT NULL, n INTEGER)")
        self.site = self.open()

    def define(self, definitions: str) -> None:
        """What `site.toml` says from now on; whoever has it open keeps what it said."""
        (self.folder / "site.toml").write_text(self.settings + definitions)

    def open(self) -> Site:
        return Site.open(self.folder, clock=self.clock)

    def query(self, statement: str) -> list[tuple[object, ...]]:
        """Ask the plant's database; it is not kept open."""
        connection = apsw.Connection(str(self.folder / "plant.db"))
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def sweep(self, options: CallOptions | None = None) -> int:
        """What the agent does once: try all that is due, of both categories; how many attempts that were."""

        async def run() -> int:
            folder = read_folder(self.folder)
            external = ExternalCarrier(self.clock, folder.outbound)
            database = DatabaseCarrier(self.clock, folder.outbound)
            attempts = 0
            for forwarder in (
                CallForwarder(self.site._buffer, external, folder.externals, self.clock, options=options),
                CallForwarder(self.site._buffer, database, folder.databases, self.clock, options=options),
            ):
                attempts += await forwarder.sweep()
                await forwarder.close()
            return attempts

        return asyncio.run(run())

    def sweep_later(self) -> int:
        """The same, one interval on."""
        self.clock.advance(INTERVAL_S)
        return self.sweep()

    def record(self, call_id: str) -> CallRecord:
        return self.site.tracking.status(call_id)

    def message(self, call_id: str) -> Message | None:
        """The operation's row in the buffer."""
        found = self.site._buffer.find(call_id)
        assert found is None or isinstance(found, Message)
        return found

    def events(self, call_id: str | None = None) -> list[event_log.SiteEvent]:
        """What the event log tells, the oldest first."""
        wanted = event_queries.SiteEventFilter(message_id=call_id)
        return self.site._buffer.read(lambda cursor: event_queries.query(cursor, wanted))[::-1]

    def kinds(self, call_id: str | None = None) -> list[str]:
        return [event.kind for event in self.events(call_id)]


@contextmanager
def running_plant(folder: Path, *, interval_s: float = INTERVAL_S, retries_max: int = RETRIES_MAX) -> Iterator[Plant]:
    with HttpServerThread() as server:
        plant = Plant(folder, server, interval_s, retries_max)
        try:
            yield plant
        finally:
            plant.site.close()
