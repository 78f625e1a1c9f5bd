"""`fieldpost settings`: the effective settings of a central node."""

from typing import Annotated

import typer

from fieldpost.cli.options import central
from fieldpost.cli.output import show_table, table

app = typer.Typer(help="Effective settings of the central node that answers.", no_args_is_help=True)

SETTINGS = table(
    "settings",
    ("setting", lambda one: f"{one['section']}.{one['name']}"),
    "value default origin",
    empty="All settings have their default values.",
)


@app.command()
def show(
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from their default.")] = False,
) -> None:
    """Show every setting with its value, default and origin. Needs the role admin."""
    found = central().get("settings")
    found["settings"] = [one for one in found["settings"] if not (changed and one["is_default"])]
    show_table(found, SETTINGS)
