"""`fieldpost kpis` and `fieldpost nodes`."""

from typing import Annotated

import typer

from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import moment, print_json, print_table, show_table, table

NODES = table(
    "nodes",
    "node=node_id state leader=is_leader host version started=started_at last_heartbeat=heartbeat_at",
    empty="No node has run yet. Start one: fieldpost central",
)


def kpis(
    by_site: Annotated[bool, typer.Option("--sites", help="Show the KPIs of each site.")] = False,
    history: Annotated[str | None, typer.Option(help="Show the history of this KPI.", metavar="KPI")] = None,
    site: Annotated[str | None, typer.Option(help="With --history: of this site only.")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="With --history: start time, e.g. 2026-11-15T08:00:00Z.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="With --history: end time.")] = None,
) -> None:
    """Show the KPIs: counts of pending, stuck, overdue and parked notifications, and delivery rates."""
    client = central()
    if history is not None:
        found = client.get("kpis", "history", kpi=history, site=site, **{"from": begin, "to": end})
        rows = [(moment(point["at"]), _number(point["value"])) for point in found["points"]]
        columns, empty = ("at", history), "No samples in this time range."
    elif by_site:
        found = client.get("kpis", "sites")
        names = list(found["sites"][0]["kpis"]) if found["sites"] else []
        rows = [(one["site"], *(_number(one["kpis"][name]) for name in names)) for one in found["sites"]]
        columns, empty = ("site", *names), "No sites yet. Add one: fieldpost sites add NAME"
    else:
        found = client.get("kpis")
        rows = [(name, _number(value)) for name, value in found["kpis"].items()]
        columns, empty = ("kpi", "value"), ""
    if is_json():
        print_json(found)
    else:
        print_table(columns, rows, empty)


def nodes() -> None:
    """List the central nodes and their states."""
    show_table(central().get("nodes"), NODES)


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"
