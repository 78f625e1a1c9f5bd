"""The parts of a central node, assembled from its settings; `run.central` runs them."""

import os
import random
import secrets
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from fieldpost.central import adapters
from fieldpost.central.access.oidc import Oidc
from fieldpost.central.adapters.email.options import EmailOptions
from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.dispatch.crash_log import CRASH_FILE, CrashLog
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.ingest.notices import NoticePublisher
from fieldpost.central.ingest.receipts import ReceiptIngest
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.rendering.composer import Composer
from fieldpost.central.rendering.pool import RenderPool
from fieldpost.central.rendering.waiting import WaitingEvents
from fieldpost.central.secrets.key_files import load_keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.figures import installation
from fieldpost.central.upkeep.sealer import HEADS_FILE
from fieldpost.central.upkeep.upkeep import CentralUpkeep
from fieldpost.central.watch.channel_checks import ChannelChecks
from fieldpost.central.watch.metrics import Metrics
from fieldpost.central.watch.watch import Watch
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.delivery.routing import traits_of
from fieldpost.core.errors import ConfigError
from fieldpost.core.ids import new_id
from fieldpost.core.setting import EffectiveSettings
from fieldpost.front.app import create_app
from fieldpost.front.server import CentralServer
from fieldpost.front.tls import Certificate
from fieldpost.outbound.outbound import Outbound
from fieldpost.run import logs
from fieldpost.run.effective_settings import Origins, effective_settings
from fieldpost.run.settings import CentralSettings


@dataclass(frozen=True, slots=True)
class CentralNode:
    """One central process: its loops, its server and the resources to close."""

    node_id: str
    store: Store
    clock: Clock
    outbound: Outbound
    adapters: dict[str, Adapter]
    operate: Operate
    commands: CommandSender
    notices: NoticePublisher
    pool: RenderPool
    waiting_events: WaitingEvents
    dispatcher: Dispatcher
    upkeep: CentralUpkeep
    server: CentralServer
    certificate: Certificate | None


async def assemble(
    settings: CentralSettings, store: Store, folder: Path, listening: socket.socket, origins: Origins | None
) -> CentralNode:
    """Build a node on an open store and a listening socket. Raises ConfigError for settings that do not work."""
    clock = SystemClock()
    node_id = new_id(clock.now(), os.urandom(10))
    outbound = Outbound(settings.outbound)
    message_id_domain = await keep_message_id_domain(store, settings.email)
    loaded = adapters.load(outbound, webhooks=settings.webhooks, message_id_domain=message_id_domain)
    keyring = await load_keyring(store, settings.secrets, folder, clock.now())
    logs.scrub_with(keyring.scrub)
    pool = RenderPool()
    composer = Composer(pool, loaded)
    operate = Operate.over(
        store,
        loaded,
        clock,
        keyring,
        settings.intents,
        settings.accounts,
        webhooks=settings.webhooks,
        pool=pool,
        template_wait_days=settings.events.template_wait_days,
        zgw=settings.zgw,
        public_url=settings.front.public_url,
    )
    if settings.oidc.issuer:
        public_url = settings.front.public_url
        oidc = Oidc(store, clock, operate.logins, outbound.admin_http, settings.oidc, public_url)
        operate = replace(operate, oidc=oidc)
    metrics = Metrics(clock)
    receipts = ReceiptIngest(store, loaded, keyring)
    ingest = Ingest(store, clock, settings.ingest, metrics, settings.mirror, settings.events, composer, receipts)
    commands = CommandSender(store, ingest.mirrors, settings.mirror.reconcile_interval_s, clock)
    notices = NoticePublisher(store, clock, ingest.publisher)
    rng = random.Random(secrets.randbits(64))
    dispatcher = Dispatcher(
        store,
        loaded,
        node_id,
        clock,
        rng,
        settings.dispatch,
        keyring,
        metrics,
        settings.webhooks,
        CrashLog(folder / CRASH_FILE),
        composer,
        settings.zgw.retry_policy,
        settings.front.public_url,
    )
    sweep_interval_s = settings.dispatch.interval_s
    upkeep = CentralUpkeep.over(
        store,
        node_id,
        clock,
        settings.watch.thresholds(sweep_interval_s),
        settings.upkeep,
        settings.watch.freshness,
        keyring,
        Path(settings.audit.heads_file or folder / HEADS_FILE),
        settings.events.retention_days,
        settings.webhooks,
    )
    watch = Watch.over(
        store,
        clock,
        settings.watch,
        keyring,
        metrics,
        sweep_interval_s,
        settings.upkeep.audit_retention,
        settings.ingest.ceilings,
        settings.events.template_wait_days,
        {name: traits_of(adapter) for name, adapter in loaded.items()},
        ChannelChecks(store, loaded, keyring, settings.front.public_url),
    )
    shown = EffectiveSettings(node_id, effective_settings(settings, origins))
    app = create_app(operate, watch, ingest, commands, settings.front, clock, shown, settings.zgw)
    certificate = Certificate(settings.front) if settings.front.has_tls else None
    server = CentralServer(app, listening, settings.front, certificate)
    return CentralNode(
        node_id,
        store,
        clock,
        outbound,
        loaded,
        operate,
        commands,
        notices,
        pool,
        WaitingEvents(store, clock, settings.events.template_wait_days),
        dispatcher,
        upkeep,
        server,
        certificate,
    )


async def keep_message_id_domain(store: Store, options: EmailOptions) -> str:
    """The domain of Message-IDs, chosen at the first start of any node. Raises ConfigError if another one is set."""
    first = options.first_domain(socket.gethostname(), os.urandom(6))
    kept = await store.write(installation.choose, "message_id_domain", first)
    if options.domain not in ("", kept):
        raise ConfigError(
            "settings.kept",
            f"email.message_id_domain is {options.domain}, but this installation has used {kept} since its first start",
            hint=f"remove the setting or set it to {kept}: with another domain, repeated mails would not be recognised",
            field="email.message_id_domain",
        )
    return kept
