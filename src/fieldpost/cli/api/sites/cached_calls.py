"""`fieldpost cached-calls`: the cached calls of all sites, from central's mirror."""

from typing import Annotated, Any

import typer

from fieldpost.cli.api.sites import intents
from fieldpost.cli.arguments import CallIdArgument, CursorOption, LimitOption, ReasonOption, SiteArgument, WaitOption
from fieldpost.cli.filters import filtered
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import columns, done, moment, print_json, show_fields, show_table, table
from fieldpost.core.search.filters import CALL_FILTERS

app = typer.Typer(help="Cached calls of the sites: external calls and database writes.", no_args_is_help=True)

CallIdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of the calls.")]


def _status(call: Any) -> str:
    if call["gone_at"]:
        return f"{call['status']} (no longer at the site)"
    return f"{call['status']} (stuck)" if call["is_stuck"] else str(call["status"])


CALLS = table(
    "cached_calls",
    "site id=call_id created=created_at",
    ("status", _status),
    "target retries=retry_count last_error",
    empty="No matching calls.",
)
PARKED = table(
    "rows", "id=call_id created=created_at target retries=retry_count last_error", empty="The site has no parked calls."
)
FIELDS = columns(
    "id=call_id site",
    ("status", _status),
    ("target", lambda call: f"{call['target']} ({call['category']})"),
    "retries=retry_count last_error http_status instance script execution=execution_id created=created_at",
    "changed=updated_at ended=terminal_at reported=received_at",
)


@app.command("list")
@filtered(CALL_FILTERS)
def list_(filters: dict[str, Any], limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List cached calls as the sites reported them, newest first."""
    show_table(central().get("cached-calls", limit=limit, cursor=cursor, **filters), CALLS)


@app.command()
def show(site: SiteArgument, call_id: CallIdArgument) -> None:
    """Show one cached call and the requests of operators for it."""
    found = central().get("cached-calls", call_id, site=site)
    if is_json():
        print_json(found)
        return
    show_fields(found["cached_call"], FIELDS, ("mirror complete", moment(found["reconciled_at"])))
    for one in found["intents"]:
        result = f"{one['outcome']}: {one['detail'] or ''}".rstrip(": ") if one["outcome"] else ""
        print(f"{one['kind']} by {one['actor']}, {moment(one['created_at'])}: {one['state']} {result}".rstrip())


@app.command()
def retry(site: SiteArgument, call_ids: CallIdsArgument, reason: ReasonOption = None, wait: WaitOption = 10.0) -> None:
    """Retry parked calls at their site. The request is queued while the site is offline."""
    intents.request(site, "retry", call_ids, "queued for retry", reason, wait)


@app.command()
def discard(
    site: SiteArgument, call_ids: CallIdsArgument, reason: ReasonOption = None, wait: WaitOption = 10.0
) -> None:
    """Discard parked calls at their site. The request is queued while the site is offline."""
    intents.request(site, "discard", call_ids, "discarded", reason, wait)


@app.command()
def parked(site: SiteArgument, limit: LimitOption = 50, cursor: CursorOption = None, wait: WaitOption = 10.0) -> None:
    """List a site's parked calls, oldest first, as the site itself reports them."""
    show_table(intents.query(site, "list_parked", wait, limit=limit, cursor=cursor), PARKED)


@app.command()
def reconcile(site: SiteArgument, wait: WaitOption = 10.0) -> None:
    """Read all calls of a site again from the beginning."""
    created = intents.create(central(), site, "reconcile", wait)
    intents.answer_of(created, site)
    done({"intents": created}, f"Reconciliation of {site} started.")
