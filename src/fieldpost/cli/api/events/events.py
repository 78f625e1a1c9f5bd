"""`fieldpost events`: publish events, search them, and show their results."""

import json
import os
import sys
from typing import Annotated, Any

import typer

from fieldpost.cli.arguments import CursorOption, LimitOption
from fieldpost.cli.filters import filtered
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import columns, counts, done, print_json, print_rows, short, show_fields, show_table, table
from fieldpost.clock import SystemClock
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import new_id
from fieldpost.core.search.filters import EVENT_FILTERS

app = typer.Typer(help="Events: published by applications, delivered to subscriptions and lists.", no_args_is_help=True)

EVENTS = table(
    "events",
    "id=event_id recorded=created_at topic action resource source matches=match_count",
    empty="No matching events.",
)
FIELDS = columns(
    "id=event_id topic action resource source occurred=occurred_at recorded=created_at correlation=correlation_id",
    ("attributes", lambda one: ", ".join(f"{name}={value}" for name, value in one["attributes"].items()) or None),
    "matches=match_count",
    ("notifications", lambda one: counts(one["counts"])),
)
_REASONS = {"no_template": "waits for a template", "cooldown": "suppressed by the route's cooldown"}
WITHHELD = columns("route=route_name list=list_name", ("reason", lambda one: _REASONS[one["reason"]]))
NOTIFICATIONS = columns("id=notification_id receiver status", ("last error", short("last_error", 60)))


@app.command("list")
@filtered(EVENT_FILTERS)
def list_(filters: dict[str, Any], limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List events, newest first."""
    show_table(central().get("events", limit=limit, cursor=cursor, **filters), EVENTS)


@app.command()
def show(
    event_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the event.")],
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """Show an event with its payload and the notifications that resulted from it."""
    found = central().get("events", event_id, limit=limit, cursor=cursor)
    show_fields(found, FIELDS)
    if is_json():
        return
    if found["notifications"]:
        print("\nNotifications")
        print_rows(NOTIFICATIONS, found["notifications"])
    if found["withheld"]:
        print("\nWithout a notification")
        print_rows(WITHHELD, found["withheld"])
    if found["next_cursor"]:
        print(f"\nMore results: --cursor {found['next_cursor']}")
    print("\nPayload")
    if found["payload"] is None:
        print("(only operators, administrators and the publisher can read the payload)")
    else:
        print_json(found["payload"])


@app.command()
def publish(
    topic: Annotated[str, typer.Argument(help="Topic of the event.")],
    payload: Annotated[str, typer.Argument(help="Payload, a JSON object; - reads it from stdin.")],
    action: Annotated[str | None, typer.Option(help="What happened, e.g. create.")] = None,
    resource: Annotated[str | None, typer.Option(help="What it happened to, e.g. order/17.")] = None,
    attribute: Annotated[list[str] | None, typer.Option(help="NAME=VALUE to filter by. Repeatable.")] = None,
    correlation: Annotated[str | None, typer.Option(help="Id that links related events.")] = None,
    event_id: Annotated[
        str | None, typer.Option("--id", help="UUID of the event; give it to repeat a publication safely.")
    ] = None,
) -> None:
    """Publish an event and print its id. Needs the role operator or publisher."""
    text = sys.stdin.read() if payload == "-" else payload
    body = {
        "event_id": event_id or new_id(SystemClock().now(), os.urandom(10)),
        "topic": topic,
        "payload": parse_payload(text),
        "action": action,
        "resource": resource,
        "attributes": dict(parse_attribute(one) for one in attribute or ()),
        "correlation_id": correlation,
    }
    published = central().post("events", body=body)
    done(published, published["event_id"])


def parse_payload(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("cli.payload", "PAYLOAD must be a JSON object", field="PAYLOAD") from None


def parse_attribute(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair:
        raise InvalidInput("cli.attribute", f"--attribute must be NAME=VALUE, got {text[:64]!r}", field="--attribute")
    return name, value
