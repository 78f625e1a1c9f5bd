"""The process `fieldpost central`: front, ingest, dispatcher and upkeep on one store, until SIGTERM or SIGINT."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

import fieldpost
from fieldpost.central.access.accounts import FirstAccount, link_path
from fieldpost.central.secrets.secret_file import write_secret_file
from fieldpost.central.store.engine.database_url import open_store, parse_url
from fieldpost.central.store.engine.lock import StoreLock
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import leases, nodes
from fieldpost.central.store.notifications import claims
from fieldpost.central.store.schema.migrate import upgrade_async
from fieldpost.clock import Clock
from fieldpost.core.errors import ConfigError, Unavailable
from fieldpost.run import gc_tuning
from fieldpost.run.data_folder import check_central_folder, check_database, make_folder
from fieldpost.run.doctor import TOKEN_FILE
from fieldpost.run.effective_settings import Origins
from fieldpost.run.listening import listen_on
from fieldpost.run.node import assemble
from fieldpost.run.process import stop_on_signals
from fieldpost.run.settings import CentralSettings

log = structlog.get_logger()

HEARTBEAT_S = 5.0
CONNECTIONS_PER_SITE = 2
"""One for data, one for control."""
LINK_FILE = "first-login"


@dataclass(frozen=True, slots=True)
class Started:
    """Announced once central serves: its address, and at the very first start the new administrator."""

    url: str
    first_account: FirstAccount | None
    token_file: Path
    link_file: Path
    first_link: str | None = field(default=None, repr=False)
    """The one-time link at which the first administrator chooses a password."""


async def run_central(
    settings: CentralSettings,
    on_started: Callable[[Started], None],
    *,
    stopping: asyncio.Event | None = None,
    first_password: str | None = None,
    origins: Origins | None = None,
) -> None:
    """Run a central node until `stopping` is set; without `stopping`, until SIGTERM or SIGINT.

    The first administrator chooses a password with a one-time link, unless `first_password` sets it. `origins` are the
    sources of the settings, for display.
    """
    if stopping is None:
        stopping = asyncio.Event()
        stop_on_signals(stopping)
        on_started = _with_gc_tuning(on_started)
    folder, url = Path(settings.central.folder), settings.central.store_url
    check_central_folder(folder, url)
    # A central that cannot listen creates nothing.
    with listen_on(settings.central.host, settings.central.port) as listening, _lock(folder, url):
        try:
            await upgrade_async(url)
        except OSError as error:
            raise Unavailable("store.unavailable", f"cannot reach the central store: {error}") from error
        store = open_store(url, lease_s=min(settings.dispatch.lease_s, settings.upkeep.lease_s))
        try:
            await _serve(settings, store, folder, listening, on_started, stopping, first_password, origins)
        finally:
            await store.close()


def _with_gc_tuning(on_started: Callable[[Started], None]) -> Callable[[Started], None]:
    """In our own process, tune the garbage collector once everything is loaded."""

    def announce(started: Started) -> None:
        gc_tuning.set_aside()
        on_started(started)

    return announce


async def migrate(url: str) -> None:
    """Upgrade the store to the current schema. Raises Conflict while a central process uses an embedded store."""
    check_database(url)
    with StoreLock(url):
        await upgrade_async(url)


async def _serve(
    settings: CentralSettings,
    store: Store,
    folder: Path,
    listening: socket.socket,
    on_started: Callable[[Started], None],
    stopping: asyncio.Event,
    first_password: str | None,
    origins: Origins | None,
) -> None:
    node = await assemble(settings, store, folder, listening, origins)
    node_id, server, operate, clock = node.node_id, node.server, node.operate, node.clock
    await node.upkeep.clock_watch.start()
    await _register_node(store, node_id)
    first_files = _FirstFiles(folder, settings.front.public_url, server.url)
    started = first_files.announcement(await operate.accounts.first_start(first_password, keep=first_files.write))
    _warn_of_connection_limit(server.connections_max, len(await operate.sites.all()))
    log.info("central.started", node_id=node_id, url=server.url, store=parse_url(store.url).get_backend_name())
    try:
        async with asyncio.TaskGroup() as group:
            dispatching = group.create_task(node.dispatcher.run())
            background = [
                group.create_task(loop)
                for loop in (
                    store.wake.listen(),
                    _send_heartbeats(store, node_id, clock),
                    node.upkeep.leader.run(),
                    node.upkeep.purge.run(),
                    node.upkeep.sampler.run(),
                    node.upkeep.indexer.run(),
                    node.upkeep.clock_watch.run(),
                    node.upkeep.session_watch.run(),
                    node.upkeep.sealer.run(),
                    node.upkeep.expiry.run(),
                    node.notices.run(),
                    node.waiting_events.run(),
                    node.commands.run(),
                    operate.bulk_actions.run(),
                )
            ]
            if node.certificate is not None:
                background.append(group.create_task(node.certificate.watch(clock)))
            serving = group.create_task(server.serve())
            await server.ready()
            on_started(started)
            await stopping.wait()
            log.info("central.stopping", node_id=node_id)
            node.dispatcher.stop()
            server.should_exit = True
            await asyncio.wait([dispatching, serving])
            for task in background:
                task.cancel()
    except Exception:
        # Nobody may be watching the terminal: the reason for the end belongs into the log.
        log.exception("central.faulted", node_id=node_id)
        raise
    finally:
        for adapter in node.adapters.values():
            await adapter.close()
        await node.outbound.close()
        await node.pool.close()
        await node.upkeep.leader.resign()
        await store.write(nodes.stop, node_id, now=store.now())
        log.info("central.stopped", node_id=node_id)


def _warn_of_connection_limit(connections_max: int, sites: int) -> None:
    """Log a warning if this node alone cannot hold the connections of all sites."""
    needed = CONNECTIONS_PER_SITE * sites
    if needed > connections_max:
        log.warning("connections.too_few", connections_max=connections_max, needed=needed, sites=sites)


async def _register_node(store: Store, node_id: str) -> None:
    await store.write(nodes.start, node_id, socket.gethostname(), fieldpost.__version__, now=store.now())
    if parse_url(store.url).get_backend_name() == "sqlite":
        # The lock proves that no other process uses the file, so all claims and leases in it are void.
        await store.write(nodes.close_others, node_id)
        await store.write(claims.void_all, now=store.now())
        await store.write(leases.void_all, now=store.now())


async def _send_heartbeats(store: Store, node_id: str, clock: Clock) -> None:
    while True:
        await clock.sleep(HEARTBEAT_S)
        try:
            await store.write(nodes.beat, node_id, now=store.now())
        except Unavailable as error:
            log.warning("node.heartbeat_missed", error=error.message)
        except Exception:
            log.exception("node.faulted")


@contextmanager
def _lock(folder: Path, url: str) -> Iterator[None]:
    make_folder("central.folder", folder)
    with StoreLock(url):
        yield


@dataclass(frozen=True, slots=True)
class _FirstFiles:
    """The files with the first administrator's API token and one-time link."""

    folder: Path
    public_url: str
    own_url: str

    def write(self, first: FirstAccount) -> None:
        try:
            if first.api_token is not None:
                write_secret_file(self.folder / TOKEN_FILE, first.api_token + "\n")
            if (link := self._link(first)) is not None:
                write_secret_file(self.folder / LINK_FILE, link + "\n")
        except OSError as error:
            raise ConfigError("central.folder", f"cannot write to the folder {self.folder}: {error.strerror}") from None

    def announcement(self, first: FirstAccount | None) -> Started:
        token_file, link_file = self.folder / TOKEN_FILE, self.folder / LINK_FILE
        return Started(self.own_url, first, token_file, link_file, None if first is None else self._link(first))

    def _link(self, first: FirstAccount) -> str | None:
        if first.link is None:
            return None
        # A server that listens on all addresses is reached at loopback on its own machine.
        on_this_machine = self.own_url.replace("//0.0.0.0", "//127.0.0.1").replace("//[::]", "//[::1]")
        return f"{self.public_url.rstrip('/') or on_this_machine}{link_path(first.link)}"
