"""`fieldpost central` runs a central node; `fieldpost migrate` upgrades the schema of its store."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldpost.cli import output

if TYPE_CHECKING:
    from fieldpost.run.settings import CentralSettings

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Settings file.  [default: ./fieldpost.toml if it exists]")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        help="Database: sqlite:///relative/file, sqlite:////absolute/file or postgresql://…"
        "  [default: a SQLite file in the folder]"
    ),
]
DataFolderOption = Annotated[str | None, typer.Option(help="Data folder.  [default: fieldpost-data]")]


def central(
    config: ConfigOption = None,
    store: StoreOption = None,
    folder: DataFolderOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.  [default: 8025]")] = None,
    tls_cert: Annotated[
        str | None, typer.Option(help="Certificate chain (PEM): serve HTTPS. Reloaded when the file changes.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(help="Private key, if it is not in the certificate file.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log in JSON.")] = False,
) -> None:
    """Run a central node: accept and deliver notifications, serve the API and the console. Ctrl-C stops it.

    The first start creates the user admin, prints a one-time link for choosing the password, and writes an API token.
    """
    from dataclasses import replace

    from fieldpost.run.gc_tuning import without_collecting

    with without_collecting():
        from fieldpost.run import logs
        from fieldpost.run.central import Started, run_central
        from fieldpost.run.effective_settings import origins
        from fieldpost.run.exposure import refuse_exposure
        from fieldpost.run.process import run_process

    settings = settings_with(config, store, folder, host, port, log_level, log_json)
    front = settings.front
    front = replace(front, tls_cert=tls_cert or front.tls_cert, tls_key=tls_key or front.tls_key)
    settings = replace(settings, front=front)
    logs.configure(settings.log.level, json=settings.log.json)
    refuse_exposure(config)

    def announce(started: Started) -> None:
        print(f"Central serves at {started.url}", flush=True)
        if (account := started.first_account) is None:
            return
        print(f"First start. Open this link within a day to choose the password of {account.name}; it works once:")
        print(f"  {started.first_link}")
        print(f"The link is also in {started.link_file}, an API token in {started.token_file}.", flush=True)

    run_process(run_central(settings, announce, origins=origins(settings, config)))


def migrate(config: ConfigOption = None, store: StoreOption = None, folder: DataFolderOption = None) -> None:
    """Upgrade the schema of the store. `fieldpost central` does this when it starts."""
    import asyncio

    from fieldpost.run.central import migrate as migrate_store

    settings = settings_with(config, store, folder)
    asyncio.run(migrate_store(settings.central.store_url))
    output.done({"is_schema_present": True}, "The store has the current schema.")


def settings_with(
    config: Path | None,
    store: str | None,
    folder: str | None,
    host: str | None = None,
    port: int | None = None,
    log_level: str | None = None,
    log_json: bool = False,
) -> "CentralSettings":
    """The settings; options of the command line have precedence."""
    from dataclasses import replace

    from fieldpost.run.settings import load

    settings = load(config)
    given = {"store": store, "folder": folder, "host": host, "port": port}
    central = replace(settings.central, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    log = replace(settings.log, level=log_level or settings.log.level, json=log_json or settings.log.json)
    return replace(settings, central=central, log=log)
