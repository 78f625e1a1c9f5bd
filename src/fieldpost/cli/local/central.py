"""`fieldpost central` runs a central node; `fieldpost migrate` brings its store to the present schema."""

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli import output

if TYPE_CHECKING:
    from fieldpost.run.settings import CentralSettings

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The settings file; else ./fieldpost.toml, if there is one.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        help="sqlite:///relative/file, sqlite:////absolute/file or postgresql://…; else a file in the folder."
    ),
]
DataFolderOption = Annotated[str | None, typer.Option(help="Where data is kept.  [default: fieldpost-data]")]


def central(
    config: ConfigOption = None,
    store: StoreOption = None,
    folder: DataFolderOption = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on.  [default: 8025]")] = None,
    tls_cert: Annotated[
        str | None, typer.Option(help="The certificate and its chain (PEM): serve HTTPS. Read again when it changes.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its private key, unless that is in the same file.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.  [default: info]")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")] = False,
) -> None:
    """Run central: it takes notifications in, delivers them and serves the console. Ctrl-C stops it.

    The first start makes an administrator, who chooses his password by a link that is printed once, and an API token.
    """
    from dataclasses import replace

    from fieldpost.run.gc_tuning import without_collecting

    with without_collecting():
        from fieldpost.run import logs
        from fieldpost.run.central import Started, run_central
        from fieldpost.run.effective_settings import origins
        from fieldpost.run.exposure import refuse_exposure

    settings = settings_with(config, store, folder, host, port, log_level, log_json)
    front = settings.front
    front = replace(front, tls_cert=tls_cert or front.tls_cert, tls_key=tls_key or front.tls_key)
    settings = replace(settings, front=front)
    logs.configure(settings.log.level, json=settings.log.json)
    refuse_exposure(config)

    def say(started: Started) -> None:
        print(f"Central serves at {started.url}", flush=True)
        if (account := started.first_account) is None:
            return
        print(f"First start: open this link to choose the password of {account.name} (once, within a day):")
        print(f"  {started.first_link}")
        print(
            f"It is kept in {started.link_file}; the command line's API token is in {started.token_file}.", flush=True
        )

    _run(run_central(settings, say, origins=origins(settings, config)))


def migrate(
    config: ConfigOption = None,
    store: StoreOption = None,
    folder: DataFolderOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """Bring the central store to the present schema. `fieldpost central` does so by itself at start."""
    import asyncio

    from fieldpost.run.central import migrate as migrate_store

    settings = settings_with(config, store, folder)
    asyncio.run(migrate_store(settings.central.store_url))
    output.say({"is_schema_present": True}, as_json, "The store has the present schema.")


def settings_with(
    config: Path | None,
    store: str | None,
    folder: str | None,
    host: str | None = None,
    port: int | None = None,
    log_level: str | None = None,
    log_json: bool = False,
) -> "CentralSettings":
    """The settings, with what the command line says above the rest."""
    from dataclasses import replace

    from fieldpost.run.settings import load

    settings = load(config)
    said = {"store": store, "folder": folder, "host": host, "port": port}
    central = replace(settings.central, **{name: value for name, value in said.items() if value is not None})  # type: ignore[arg-type]
    log = replace(settings.log, level=log_level or settings.log.level, json=log_json or settings.log.json)
    return replace(settings, central=central, log=log)


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where there is one; it is quicker."""
    import asyncio

    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
