"""`fieldpost kpis` and `fieldpost nodes`: how central is doing, and who does it."""

from typing import Annotated

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_json, print_table, show_table


def kpis(
    by_site: Annotated[bool, typer.Option("--sites", help="Those of each site instead of all together.")] = False,
    history: Annotated[
        str | None, typer.Option(help="How this one was, instead of how all are now.", metavar="KPI")
    ] = None,
    site: Annotated[str | None, typer.Option(help="With --history: of this site alone.")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="With --history: since when, e.g. 2026-11-15T08:00:00Z.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="With --history: until when.")] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the KPIs: how much waits, is stuck, overdue or parked, and how much was delivered of late."""
    client = Client(url, token_file)
    if history is not None:
        found = client.get("kpis", "history", kpi=history, site=site, **{"from": begin, "to": end})
        rows = [(moment(point["at"]), _number(point["value"])) for point in found["points"]]
        columns, empty = ("at", history), "Nothing was kept of that time."
    elif by_site:
        found = client.get("kpis", "sites")
        names = list(found["sites"][0]["kpis"]) if found["sites"] else []
        rows = [(one["site"], *(_number(one["kpis"][name]) for name in names)) for one in found["sites"]]
        columns, empty = ("site", *names), "There are no sites yet; add one with: fieldpost sites add NAME"
    else:
        found = client.get("kpis")
        rows = [(name, _number(value)) for name, value in found["kpis"].items()]
        columns, empty = ("kpi", "now"), ""
    if as_json:
        print_json(found)
        return
    print_table(columns, rows, empty)


def nodes(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show the nodes of central: which run, which stopped or were lost, and which one leads."""
    found = Client(url, token_file).get("nodes")
    show_table(
        found,
        as_json,
        ("node", "state", "leads", "host", "version", "started", "last heard of"),
        [
            (
                node["node_id"],
                node["state"],
                node["is_leader"],
                node["host"],
                node["version"],
                moment(node["started_at"]),
                moment(node["heartbeat_at"]),
            )
            for node in found["nodes"]
        ],
        "No node has ever run.",
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"
