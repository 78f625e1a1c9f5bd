"""The process `fieldpost relay`: one relay on one outbox, until SIGTERM or SIGINT."""

import asyncio
import logging

from fieldpost.outbox.relay.relay import RelayLoop
from fieldpost.outbox.relay.sqlite import newest_sqlite
from fieldpost.run import gc_tuning, logs
from fieldpost.run.process import stop_on_signals
from fieldpost.run.relay_settings import RelaySettings


async def run_relay(settings: RelaySettings, *, stopping: asyncio.Event | None = None) -> None:
    """Run a relay until `stopping` is set; without `stopping`, until SIGTERM or SIGINT.

    Raises ConfigError when it cannot start. A central or a database that is away does not keep it from starting.
    """
    relay = RelayLoop(settings.relay, sqlite=newest_sqlite())
    if stopping is None:
        stopping = asyncio.Event()
        stop_on_signals(stopping)
        gc_tuning.set_aside()
    await relay.run(stopping)


def configure_logs(settings: RelaySettings) -> None:
    """Log to stderr; the relay's own lines from the configured level up."""
    logs.configure(settings.log.level, json=settings.log.json)
    logging.getLogger("fieldpost.relay").setLevel(settings.log.level.upper())
