"""`fieldpost intents`: requests to sites; also how other commands create one and wait for its answer."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli.api.watching import WatchOption, watch
from fieldpost.cli.arguments import CursorOption, LimitOption
from fieldpost.cli.filters import filtered
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import columns, done, print_json, show_fields, show_table, table
from fieldpost.clock import SystemClock
from fieldpost.core.errors import Conflict, Unavailable
from fieldpost.core.search.filters import INTENT_FILTERS

if TYPE_CHECKING:
    from fieldpost.link.http.client import ApiClient

app = typer.Typer(help="Requests to sites, and the sites' answers.", no_args_is_help=True)

POLL_S = 0.3
IntentArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the intent.")]

INTENTS = table(
    "intents",
    "id=intent_id created=created_at by=actor site kind message=message_id state outcome detail",
    empty="No matching intents.",
)
FIELDS = columns(
    "id=intent_id site kind message=message_id by=actor reason state outcome detail created=created_at",
    "expires=expires_at sent=sent_at done=done_at",
)


@app.command("list")
@filtered(INTENT_FILTERS)
def list_(filters: dict[str, Any], limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List intents, newest first."""
    show_table(central().get("intents", limit=limit, cursor=cursor, **filters), INTENTS)


@app.command()
def show(intent_id: IntentArgument, is_watched: WatchOption = False) -> None:
    """Show an intent and the site's answer."""
    client = central()

    def read() -> dict[str, Any]:
        return client.get("intents", intent_id)

    found = watch(read, lambda intent: not is_open(intent), "state") if is_watched else read()
    show_fields(found, FIELDS)
    if found["answer"] and not is_json():
        print()
        print_json(found["answer"])


@app.command()
def cancel(intent_id: IntentArgument) -> None:
    """Cancel an intent that has not been sent yet."""
    done(central().post("intents", intent_id, "cancel", body={}), f"Cancelled intent {intent_id}.")


def create(client: "ApiClient", site: str, kind: str, wait_s: float, **more: Any) -> list[dict[str, Any]]:
    """Create one intent per message and wait up to `wait_s` seconds for the site; returns their last known state."""
    body = {"site": site, "kind": kind} | {name: value for name, value in more.items() if value}
    created: list[dict[str, Any]] = client.post("intents", body=body)["intents"]
    clock = SystemClock()
    until = clock.monotonic() + wait_s
    while any(is_open(one) for one in created) and clock.monotonic() < until:
        clock.pause(min(POLL_S, max(0.0, until - clock.monotonic())))
        created = [client.get("intents", one["intent_id"]) if is_open(one) else one for one in created]
    return created


def is_open(intent: dict[str, Any]) -> bool:
    return intent["state"] in ("waiting", "sent")


def request(site: str, kind: str, message_ids: list[str], result: str, reason: str | None, wait_s: float) -> None:
    """Ask a site to act on messages and print the result of each; Conflict unless the site applied all of them."""
    created = create(central(), site, kind, wait_s, message_ids=message_ids, reason=reason)
    if is_json():
        print_json({"intents": created})
    for one in () if is_json() else created:
        if is_open(one):
            print(f"{one['message_id']}: waiting for site {one['site']} (intent {one['intent_id']})")
        elif one["outcome"] == "applied":
            print(f"{one['message_id']}: {result}")
        else:
            print(f"{one['message_id']}: {one['outcome']}: {one['detail'] or ''}".rstrip(": "))
    if any(not is_open(one) and one["outcome"] != "applied" for one in created):
        raise Conflict("intent.not_applied", "the site did not apply every request", hint="see the result of each id")


def query(site: str, kind: str, wait_s: float, /, **arguments: Any) -> dict[str, Any]:
    """The site's answer to a query; Unavailable if it has not answered in time."""
    wanted = {name: value for name, value in arguments.items() if value is not None}
    return answer_of(create(central(), site, kind, wait_s, arguments=wanted), site)


def answer_of(created: list[dict[str, Any]], site: str) -> dict[str, Any]:
    """The answer in the only intent; Unavailable while it is open, Conflict if the site refused it."""
    (one,) = created
    if is_open(one):
        raise Unavailable(
            "site.unreachable",
            f"site {site} has not answered yet",
            hint=f"the request is queued: fieldpost intents show {one['intent_id']}",
        )
    if one["outcome"] != "applied":
        raise Conflict("intent.not_applied", f"{one['outcome']}: {one['detail'] or ''}")
    answer: dict[str, Any] = one["answer"] or {"rows": []}
    return answer
