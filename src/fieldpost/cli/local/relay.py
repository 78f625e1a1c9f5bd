"""`fieldpost relay` runs the relay of an application's outbox."""

from pathlib import Path
from typing import Annotated

import typer


def relay(
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings file.  [default: ./fieldpost.toml if it exists]")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log in JSON.")] = False,
) -> None:
    """Run a relay: publish the events of your application's outbox to central and follow their results. Ctrl-C stops
    it.

    The settings are in the section [relay] or in the environment: FIELDPOST_RELAY__DATABASE, FIELDPOST_RELAY__URL and
    FIELDPOST_RELAY__TOKEN_FILE. Several relays may run on one outbox.
    """
    from dataclasses import replace

    from fieldpost.run.process import run_process
    from fieldpost.run.relay import configure_logs, run_relay
    from fieldpost.run.relay_settings import load_relay

    settings = load_relay(config)
    log = replace(settings.log, level=log_level or settings.log.level, json=log_json or settings.log.json)
    settings = replace(settings, log=log)
    configure_logs(settings)
    run_process(run_relay(settings))
