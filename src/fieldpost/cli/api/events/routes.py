"""`fieldpost routes`: which events become notifications to which list."""

from typing import Annotated, Any

import typer

from fieldpost.cli.api.events.events import parse_attribute, parse_payload
from fieldpost.cli.api.events.subscriptions import FilterOption, conditions, read_entries
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import columns, done, or_never, print_rows, show_fields, show_table, table
from fieldpost.core.errors import InvalidInput

app = typer.Typer(help="Routes: which events become notifications to which list.", no_args_is_help=True)

RouteArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the route.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Payload member that holds the address, such as user.email. Only this address is notified, by the channel"
        " and policies of the list; the targets of the list are not."
    ),
]
CooldownOption = Annotated[
    float | None,
    typer.Option("--cooldown-s", help="After a notification, suppress events for this many seconds. 0 removes it."),
]
CooldownByOption = Annotated[
    str | None, typer.Option("--cooldown-by", help="Attribute whose values have cooldowns of their own.")
]

TABLE = table(
    "routes",
    "id=route_id name",
    ("filter", conditions),
    "list=list_name to cooldown_s suppressed",
    ("without template", lambda one: ", ".join(one["without_template"])),
    empty="No routes. Add one: fieldpost routes add NAME --filter topic=… --list LIST",
)
FIELDS = columns(
    "id=route_id name",
    ("filter", conditions),
    "list=list_name",
    ("type of the list", lambda one: one["list_type"] or "(the list does not exist)"),
    "to cooldown_s cooldown_by suppressed",
    ("without template", lambda one: ", ".join(one["without_template"]) or None),
    "removed_at version",
)
COOLDOWNS = columns("value until suppressed", ("last suppressed", or_never("last_suppressed_at")))
TRIALS = table(
    "routes",
    "name list=list_name type=list_type address",
    ("template", lambda one: f"version {one['template_version']}" if one["template_version"] else "(none: would wait)"),
    empty="No route matches this event.",
)


@app.command("list")
def list_() -> None:
    """List all routes by name."""
    show_table(central().get("routes"), TABLE)


@app.command()
def show(route_id: RouteArgument) -> None:
    """Show a route with its cooldowns."""
    found = central().get("routes", route_id)
    if is_json():
        show_fields(found, {})
        return
    show_fields(found["route"], FIELDS)
    if found["cooldowns"]:
        print()
        print_rows(COOLDOWNS, found["cooldowns"])


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the route.")],
    list_name: Annotated[str, typer.Option("--list", help="List to notify.")],
    filter_: FilterOption = None,
    to: AddressOption = None,
    cooldown_s: CooldownOption = None,
    cooldown_by: CooldownByOption = None,
) -> None:
    """Add a route. Events published from now on take it."""
    body = {
        "name": name,
        "filter": read_entries(filter_ or []),
        "list_name": list_name,
        "to": to,
        "cooldown_s": cooldown_s or None,
        "cooldown_by": cooldown_by,
    }
    added = central().post("routes", body=body)
    done(added, f"Added route {added['route']['route_id']}.")
    if not is_json():
        _print_missing(added["route"])


@app.command()
def change(
    route_id: RouteArgument,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    list_name: Annotated[str | None, typer.Option("--list", help="List to notify.")] = None,
    filter_: FilterOption = None,
    to: AddressOption = None,
    to_list: Annotated[bool, typer.Option("--to-list", help="Notify the targets of the list again.")] = False,
    cooldown_s: CooldownOption = None,
    cooldown_by: CooldownByOption = None,
) -> None:
    """Change a route. Everything not given stays."""
    given: dict[str, Any] = {"name": name, "list_name": list_name, "to": to, "cooldown_by": cooldown_by}
    given["filter"] = read_entries(filter_) if filter_ else None
    changes = {key: value for key, value in given.items() if value is not None}
    if to_list:
        changes["to"] = None
    if cooldown_s is not None:
        changes |= {"cooldown_s": cooldown_s} if cooldown_s else {"cooldown_s": None, "cooldown_by": None}
    if not changes:
        raise InvalidInput("cli.nothing", "nothing to change: give at least one option")
    client = central()
    seen = client.get("routes", route_id)["route"]
    fields = ("name", "filter", "list_name", "to", "cooldown_s", "cooldown_by", "version")
    changed = client.put("routes", route_id, body={field: seen[field] for field in fields} | changes)
    done(changed, f"Changed route {changed['route']['name']}.")


@app.command()
def remove(route_id: RouteArgument) -> None:
    """Remove a route. New events do not take it; its record stays for history."""
    client = central()
    seen = client.get("routes", route_id)["route"]
    removed = client.post("routes", route_id, "remove", body={"version": seen["version"]})
    done(removed, f"Removed route {seen['name']}.")


@app.command()
def match(
    topic: Annotated[str, typer.Argument(help="Topic of the event.")],
    payload: Annotated[str, typer.Argument(help="Payload, a JSON object.")] = "{}",
    attribute: Annotated[list[str] | None, typer.Option(help="Attribute as name=value. Repeatable.")] = None,
    action: Annotated[str | None, typer.Option(help="Action of the event.")] = None,
    resource: Annotated[str | None, typer.Option(help="Resource of the event.")] = None,
) -> None:
    """Show which lists would receive an event. Nothing is published."""
    attributes = dict(parse_attribute(text) for text in attribute or [])
    body = {"topic": topic, "payload": parse_payload(payload), "attributes": attributes}
    show_table(central().post("routes", "match", body=body | {"action": action, "resource": resource}), TRIALS)


def _print_missing(route: Any) -> None:
    if route["without_template"]:
        print(f"No template yet for {', '.join(route['without_template'])}: their events wait.")
        print("Add one: fieldpost templates save TOPIC --subject … --body-file …")
