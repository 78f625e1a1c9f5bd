"""The process `fieldpost central`: front, ingest, dispatcher and upkeep on one store, until SIGTERM or SIGINT."""

import asyncio
import os
import random
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

import fieldpost
from fieldpost.central import adapters
from fieldpost.central.access.accounts import FirstAccount, link_path
from fieldpost.central.access.oidc import Oidc
from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.secrets.key_files import load_keyring
from fieldpost.central.store.engine.database_url import open_store, parse_url
from fieldpost.central.store.engine.lock import StoreLock
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import leases, nodes
from fieldpost.central.store.notifications import claims
from fieldpost.central.store.schema.migrate import upgrade_async
from fieldpost.central.upkeep.upkeep import CentralUpkeep
from fieldpost.central.watch.metrics import Metrics
from fieldpost.central.watch.watch import Watch
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import ConfigError, Unavailable
from fieldpost.core.ids import new_id
from fieldpost.core.setting import EffectiveSettings
from fieldpost.front.app import create_app
from fieldpost.front.server import CentralServer
from fieldpost.front.tls import Certificate
from fieldpost.outbound.outbound import Outbound
from fieldpost.run import gc_tuning, logs
from fieldpost.run.effective_settings import Origins, effective_settings
from fieldpost.run.settings import CentralSettings
from fieldpost.run.signals import stop_on_signals

log = structlog.get_logger()

HEARTBEAT_S = 5.0
TOKEN_FILE = "api-token"
CONNECTIONS_PER_SITE = 2
"""One for data, one for control."""
LINK_FILE = "first-login"


@dataclass(frozen=True, slots=True)
class Started:
    """What is told once central serves: where, and at the very first start the account that was made."""

    url: str
    first_account: FirstAccount | None
    token_file: Path
    link_file: Path
    first_link: str | None = field(default=None, repr=False)
    """The address at which the first administrator chooses his password, once."""


async def run_central(
    settings: CentralSettings,
    on_started: Callable[[Started], None],
    *,
    stopping: asyncio.Event | None = None,
    first_password: str | None = None,
    origins: Origins | None = None,
) -> None:
    """Run a central node until `stopping` is set, by a signal if nobody gave one.

    The first administrator chooses his password by a one-time link, unless the caller has chosen one for him. `origins`
    says where the settings came from, for those who look at them.
    """
    if stopping is None:
        stopping = asyncio.Event()
        stop_on_signals(stopping)
        on_started = _then_set_aside(on_started)
    folder = _make_folder(settings.central.folder)
    url = settings.central.store_url
    with StoreLock(url):
        try:
            await upgrade_async(url)
        except OSError as error:
            raise Unavailable("store.unavailable", f"the central store cannot be reached: {error}") from error
        store = open_store(url, lease_s=min(settings.dispatch.lease_s, settings.upkeep.lease_s))
        try:
            await _serve(settings, store, folder, on_started, stopping, first_password, origins)
        finally:
            await store.close()


def _then_set_aside(on_started: Callable[[Started], None]) -> Callable[[Started], None]:
    """In a process of our own: once all of it is there."""

    def started(what: Started) -> None:
        gc_tuning.set_aside()
        on_started(what)

    return started


async def migrate(url: str) -> None:
    """Bring the store to the present schema; refuses an embedded one that a central process works on."""
    with StoreLock(url):
        await upgrade_async(url)


async def _serve(
    settings: CentralSettings,
    store: Store,
    folder: Path,
    on_started: Callable[[Started], None],
    stopping: asyncio.Event,
    first_password: str | None,
    origins: Origins | None,
) -> None:
    clock = SystemClock()
    node_id = new_id(clock.now(), os.urandom(10))
    outbound = Outbound(settings.outbound)
    found = adapters.load(outbound)
    keyring = await load_keyring(store, settings.secrets, folder, clock.now())
    logs.scrub_with(keyring.scrub)
    operate = Operate.over(store, found, clock, keyring, settings.intents, settings.accounts)
    if settings.oidc.issuer:
        public_url = settings.front.public_url
        oidc = Oidc(store, clock, operate.logins, outbound.admin_http, settings.oidc, public_url)
        operate = replace(operate, oidc=oidc)
    metrics = Metrics(clock)
    ingest = Ingest(store, clock, settings.ingest, metrics, settings.mirror)
    commands = CommandSender(store, ingest.mirrors, settings.mirror.reconcile_interval_s, clock)
    rng = random.Random(secrets.randbits(64))
    dispatcher = Dispatcher(store, found, node_id, clock, rng, settings.dispatch, keyring, metrics)
    sweep_interval_s = settings.dispatch.interval_s
    upkeep = CentralUpkeep.over(
        store,
        node_id,
        clock,
        settings.watch.thresholds(sweep_interval_s),
        settings.upkeep,
        settings.watch.freshness,
    )
    watch = Watch.over(store, clock, settings.watch, keyring, metrics, sweep_interval_s)
    shown = EffectiveSettings(node_id, effective_settings(settings, origins))
    app = create_app(operate, watch, ingest, commands, settings.front, clock, shown)
    certificate = Certificate(settings.front) if settings.front.has_tls else None
    server = CentralServer(app, _listen(settings.central.host, settings.central.port), settings.front, certificate)
    await _announce_node(store, node_id)
    first = await operate.accounts.first_start(first_password)
    started = _introduce(first, server.url, settings, folder)
    _tell_too_few(server.connections_max, len(await operate.sites.all()))
    log.info("central.started", node_id=node_id, url=server.url, store=parse_url(store.url).get_backend_name())
    try:
        async with asyncio.TaskGroup() as group:
            dispatching = group.create_task(dispatcher.run())
            background = [
                group.create_task(loop)
                for loop in (
                    store.wake.listen(),
                    _beat(store, node_id, clock),
                    upkeep.leader.run(),
                    upkeep.purge.run(),
                    upkeep.sampler.run(),
                    upkeep.indexer.run(),
                    commands.run(),
                    operate.bulk_actions.run(),
                )
            ]
            if certificate is not None:
                background.append(group.create_task(certificate.watch(clock)))
            serving = group.create_task(server.serve())
            await server.ready()
            on_started(started)
            await stopping.wait()
            log.info("central.stopping", node_id=node_id)
            dispatcher.stop()
            server.should_exit = True
            await asyncio.wait([dispatching, serving])
            for task in background:
                task.cancel()
    except Exception:
        # Nobody may be looking at the terminal: what ends a node is in its log.
        log.exception("central.faulted", node_id=node_id)
        raise
    finally:
        for adapter in found.values():
            await adapter.close()
        await outbound.close()
        await upkeep.leader.resign()
        await store.write(nodes.stop, node_id, now=store.now())
        log.info("central.stopped", node_id=node_id)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
        )
    except OSError as error:
        raise ConfigError(
            "central.listen",
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            hint="another process may be using it; choose one with --port",
        ) from None


def _tell_too_few(connections_max: int, sites: int) -> None:
    """Say so when this node alone could not hold the connections of all sites."""
    needed = CONNECTIONS_PER_SITE * sites
    if needed > connections_max:
        log.warning("connections.too_few", connections_max=connections_max, needed=needed, sites=sites)


async def _announce_node(store: Store, node_id: str) -> None:
    await store.write(nodes.start, node_id, socket.gethostname(), fieldpost.__version__, now=store.now())
    if parse_url(store.url).get_backend_name() == "sqlite":
        # The lock says that nobody else works on the file, so whatever was claimed or led is nobody's now.
        await store.write(nodes.close_others, node_id)
        await store.write(claims.void_all)
        await store.write(leases.void_all, now=store.now())


async def _beat(store: Store, node_id: str, clock: Clock) -> None:
    while True:
        await clock.sleep(HEARTBEAT_S)
        try:
            await store.write(nodes.beat, node_id, now=store.now())
        except Unavailable as error:
            log.warning("node.heartbeat_missed", error=error.message)
        except Exception:
            log.exception("node.faulted")


def _make_folder(name: str) -> Path:
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError("central.folder", f"the folder {folder} cannot be made: {error.strerror}") from None
    return folder


def _introduce(first: FirstAccount | None, url: str, settings: CentralSettings, folder: Path) -> Started:
    """What is told, and what is kept in files that their owner alone may read, for whoever did not see it."""
    token_file, link_file = folder / TOKEN_FILE, folder / LINK_FILE
    if first is None:
        return Started(url, None, token_file, link_file)
    if first.api_token is not None:
        _keep_secret(token_file, first.api_token)
    if first.link is None:
        return Started(url, first, token_file, link_file)
    # A server that listens everywhere is reached by this address on its own machine.
    shown = settings.front.public_url.rstrip("/") or url.replace("//0.0.0.0", "//127.0.0.1").replace(
        "//[::]", "//[::1]"
    )
    link = f"{shown}{link_path(first.link)}"
    _keep_secret(link_file, link)
    return Started(url, first, token_file, link_file, link)


def _keep_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
