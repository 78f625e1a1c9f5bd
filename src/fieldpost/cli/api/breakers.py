"""`fieldpost breakers`: circuit breakers of channels and lists."""

from typing import Annotated

import typer

from fieldpost.cli.options import central
from fieldpost.cli.output import done, moment, show_table, table

app = typer.Typer(help="Circuit breakers of channels and lists.", no_args_is_help=True)

BREAKERS = table(
    "breakers",
    "breaker=key health failures",
    ("next probe", lambda one: moment(one["open_until"])),
    "last_error",
    empty="No channel has failed yet.",
)


@app.command("list")
def list_() -> None:
    """List the breakers of all channels that have ever failed."""
    show_table(central().get("breakers"), BREAKERS)


@app.command()
def reset(key: Annotated[str, typer.Argument(help="Key of the breaker, e.g. channel:mail.")]) -> None:
    """Close a breaker and clear its failures. Held notifications are released in batches."""
    done(central().post("breakers", key, "reset", body={}), f"Closed breaker {key}.")
