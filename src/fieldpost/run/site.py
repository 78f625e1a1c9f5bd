"""The process `fieldpost site`: one agent for one folder, until SIGTERM or SIGINT."""

import asyncio
from pathlib import Path
from random import Random

from fieldpost.clock import SystemClock
from fieldpost.run import gc_tuning
from fieldpost.run.process import stop_on_signals
from fieldpost.site.agent import Agent
from fieldpost.site.config.folder import read_folder
from fieldpost.site.config.options import ForwardOptions


async def run_site(
    folder: Path, options: ForwardOptions | None = None, *, stopping: asyncio.Event | None = None
) -> None:
    """Run the site's agent until `stopping` is set; without `stopping`, until SIGTERM or SIGINT.

    `options` replace the section `[forward]` of `site.toml`. Raises ConfigError or Conflict when it cannot start.
    """
    agent = Agent(read_folder(folder), SystemClock(), Random(), options)
    if stopping is None:
        stopping = asyncio.Event()
        stop_on_signals(stopping)
        gc_tuning.set_aside()
    await agent.run(stopping)
