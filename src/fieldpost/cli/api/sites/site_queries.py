"""`fieldpost sites health|events|rejected|resubmit|discard-rejected`: queries and requests to a site."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from fieldpost.cli.api.sites import intents
from fieldpost.cli.arguments import (
    CursorOption,
    FromOption,
    LimitOption,
    NotificationIdsArgument,
    ReasonOption,
    SiteArgument,
    ToOption,
    WaitOption,
)
from fieldpost.cli.filters import filtered
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import (
    CellSource,
    columns,
    counts,
    moment,
    or_never,
    print_json,
    print_rows,
    show_fields,
    show_table,
    table,
)
from fieldpost.core.quantities import offset
from fieldpost.core.search.filters import SITE_EVENT_FILTERS

HISTORY = table(
    "points",
    ("from", lambda one: moment(one["at"])),
    "link waiting=depth",
    ("oldest, s", lambda one: round(one["oldest_age_s"])),
    "parked rejected",
    empty="The site did not report in this time range.",
)
EVENTS = table("rows", "at=occurred_at severity kind message=message_id target text", empty="No matching entries.")
REJECTED = table(
    "rows",
    "id=notification_id rejected=rejected_at",
    ("list", lambda one: one.get("list_name")),
    ("subject", lambda one: one.get("subject")),
    "code error",
    empty="The rejected box is empty.",
)


def condition(site: Any) -> str:
    """`online`, `offline`, `not enrolled yet`, …, as the console shows it."""
    new = "no report yet" if site["last_seen_at"] else "not enrolled yet"
    return {"failing": "cannot forward", "new": new}.get(site["condition"], str(site["condition"]))


def backlog(site: Any) -> str:
    """The waiting messages of a site by category."""
    return "unknown" if site["backlog"] is None else counts(site["backlog"]) or "none"


def _mirror(field: str) -> Callable[[Any], Any]:
    return lambda site: (site["mirror"] or {}).get(field)


def _unit(field: str, text: str, scale: float = 1.0) -> CellSource:
    return lambda site: None if site[field] is None else text.format(round(site[field] / scale, 1) + 0.0)


def _lag(node: Any) -> str | None:
    return None if node["lag_s"] is None else f"{node['lag_s']:.0f} s, {node['lag_changes']}"


NODES = columns(
    "node role",
    ("state", lambda node: "stopped" if node["is_stopping"] else node["link"]),
    ("lag, changes", _lag),
    "agent=version",
    ("last report", or_never("reported_at")),
)
SWITCHES = columns("recorded=recorded_at leader=node epoch cause reason")
HEALTH = columns(
    "site=name",
    ("state", condition),
    ("last report", or_never("reported_at")),
    ("last connection", or_never("last_seen_at")),
    "agent=version",
    ("waiting", backlog),
    ("oldest", lambda site: f"{site['oldest_age_s']:.0f} s" if site["oldest_age_s"] else None),
    "parked rejected",
    ("forwarding", lambda site: None if site["is_forwarding"] is None else site["forward_error"] or "ok"),
    ("disk free", _unit("disk_free_bytes", "{:.1f} GB", 1e9)),
    ("clock", lambda site: None if site["clock_offset_s"] is None else offset(site["clock_offset_s"])),
    ("events, 1 h", lambda site: counts(site["events"])),
    "open_intents",
    ("mirror complete", lambda site: moment(_mirror("reconciled_at")(site))),
    ("buffer replaced", lambda site: moment(_mirror("replaced_at")(site))),
    ("last refusal", _mirror("last_refusal")),
)


def health(
    name: SiteArgument,
    is_history: Annotated[bool, typer.Option("--history", help="Show the last day instead.")] = False,
    since: FromOption = None,
    until: ToOption = None,
) -> None:
    """Show the last health report of a site, or its history."""
    if is_history or since or until:
        show_table(central().get("site-health", name, "history", **{"from": since, "to": until}), HISTORY)
        return
    found = central().get("site-health", name)
    if is_json():
        print_json(found)
    else:
        show_fields(found["site"], HEALTH)
        if nodes := found["site"]["nodes"]:
            print()
            print_rows(NODES, nodes, "")
            print()
            print_rows(SWITCHES, found["switches"], "No node has led yet.")


@filtered(SITE_EVENT_FILTERS)
def events(
    filters: dict[str, Any],
    name: SiteArgument,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    wait: WaitOption = 10.0,
) -> None:
    """List the event log of a site, newest first."""
    show_table(intents.query(name, "query_events", wait, limit=limit, cursor=cursor, **filters), EVENTS)


def rejected(name: SiteArgument, limit: LimitOption = 50, cursor: CursorOption = None, wait: WaitOption = 10.0) -> None:
    """List the rejected box of a site, oldest first."""
    show_table(intents.query(name, "list_rejected", wait, limit=limit, cursor=cursor), REJECTED)


def resubmit(
    name: SiteArgument, notification_ids: NotificationIdsArgument, reason: ReasonOption = None, wait: WaitOption = 10.0
) -> None:
    """Forward notifications from a site's rejected box again."""
    intents.request(name, "resubmit_rejected", notification_ids, "queued for forwarding", reason, wait)


def discard_rejected(
    name: SiteArgument, notification_ids: NotificationIdsArgument, reason: ReasonOption = None, wait: WaitOption = 10.0
) -> None:
    """Discard notifications from a site's rejected box."""
    intents.request(name, "discard_rejected", notification_ids, "discarded", reason, wait)
