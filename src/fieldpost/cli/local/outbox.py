"""`fieldpost outbox`: the event outbox in an application's database."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli.output import done

app = typer.Typer(help="Maintain the event outbox in your application's database.", no_args_is_help=True)


RelayConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Settings file with the section [relay].  [default: ./fieldpost.toml if it exists]"),
]


class DatabaseName(StrEnum):
    """The databases that can hold an outbox."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"
    MARIADB = "mariadb"


@app.command()
def ddl(
    database: Annotated[DatabaseName, typer.Argument(help="The kind of your database.")],
    is_extending: Annotated[
        bool,
        typer.Option("--extend", help="For an event_outbox that has only its original eight columns: add the others."),
    ] = False,
) -> None:
    """Print the SQL that creates the tables of the outbox.

    `Outbox.create_tables` executes the same statements, after checking which tables and columns exist.
    """
    from fieldpost.outbox.ddl import changes
    from fieldpost.outbox.tables import EVENT_OUTBOX, OutboxDatabase

    existing = {EVENT_OUTBOX.name: EVENT_OUTBOX.required} if is_extending else {}
    statements = changes(OutboxDatabase(database), existing)
    done(
        {"database": database.value, "statements": statements},
        "\n".join(f"{statement};" for statement in statements),
    )


@app.command()
def doctor(
    config: RelayConfigOption = None,
) -> None:
    """Check the outbox: tables, stuck and rejected rows, relay, token, clocks, space and versions.

    It uses the relay's settings: the section [relay] or the environment (FIELDPOST_RELAY__DATABASE and others), and
    changes nothing. The exit code is 9 when a check fails, else 0.
    """
    import asyncio

    from fieldpost.cli.local.doctor import show_diagnosis
    from fieldpost.outbox.doctor.examine import examine_outbox
    from fieldpost.outbox.relay.sqlite import newest_sqlite
    from fieldpost.run.relay_settings import load_relay

    show_diagnosis(asyncio.run(examine_outbox(load_relay(config).relay, sqlite=newest_sqlite())))


@app.command()
def retry(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of rows; all that failed if none is given.")] = None,
    config: RelayConfigOption = None,
) -> None:
    """Publish rows that failed again at once, instead of at their next due time.

    For events that central rejected, after you registered their topic for example. Notifications that are parked at
    central are retried there: fieldpost notifications retry.
    """
    import asyncio

    from fieldpost.outbox.relay.row_actions import retry_rows
    from fieldpost.run.relay_settings import load_relay

    result = asyncio.run(retry_rows(load_relay(config).relay, ids or []))
    text = f"{result.changed} {'row is' if result.changed == 1 else 'rows are'} due now."
    done({"changed": result.changed, "left": list(result.left)}, text + _left(result.left, "not a failed row"))


@app.command()
def discard(
    ids: Annotated[list[str], typer.Argument(help="Ids of rows.")],
    config: RelayConfigOption = None,
) -> None:
    """Delete rows that need not be sent or followed any more. SENT rows and rows in publication stay.

    An unpublished event is then never sent.
    """
    import asyncio

    from fieldpost.outbox.relay.row_actions import discard_rows
    from fieldpost.run.relay_settings import load_relay

    result = asyncio.run(discard_rows(load_relay(config).relay, ids))
    text = f"{result.changed} {'row' if result.changed == 1 else 'rows'} discarded."
    left = _left(result.left, "unknown, SENT, or being published")
    done({"changed": result.changed, "left": list(result.left)}, text + left)


def _left(ids: tuple[str, ...], reason: str) -> str:
    return "".join(f"\nUnchanged ({reason}): {one}" for one in ids)
