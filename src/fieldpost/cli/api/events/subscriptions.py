"""`fieldpost subscriptions`: receivers of events by webhook."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from fieldpost.cli.api.bulk_actions import follow_action
from fieldpost.cli.api.channels import (
    SET_HELP,
    TEST_S,
    SecretFileOption,
    SecretOption,
    read_secrets,
    read_settings,
    show_test,
)
from fieldpost.cli.arguments import CursorOption, LimitOption, ReasonOption, RetryPolicyOption
from fieldpost.cli.filters import filtered
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import CellSource, columns, done, health_of, moment, or_never, show_fields, show_table, table
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.filter import FilterEntry, entry_text, parse_entry
from fieldpost.core.search.filters import DELIVERY_FILTERS, SUBSCRIPTION_FILTERS

app = typer.Typer(help="Subscriptions: receivers of events by webhook.", no_args_is_help=True)

SubscriptionArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the subscription.")]
FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="Conditions that must all hold, as topic=orders,action=created,country=NL; other names than topic, action "
        "and resource are attributes, * stands for any characters. Repeatable: one of them must hold.",
    ),
]


def conditions(one: Any) -> str:
    """The filter of a subscription or route in one line."""
    return " or ".join(entry_text(FilterEntry(**entry)) for entry in one["filter"])


TABLE = table(
    "subscriptions",
    "id=subscription_id name owner",
    ("health", health_of),
    "held failures",
    ("url", lambda one: one["settings"]["url"]),
    ("filter", conditions),
    empty="No subscriptions. Add one: fieldpost subscriptions add NAME --owner OWNER --url https://… --filter topic=…",
)
PREVIEW = columns(
    ("to retry", "parked"), ("to create", "missing"), ("all counted", "is_whole"), ("events from", "events_from")
)
UNHEALTHY = table(
    "subscriptions",
    "id=subscription_id name owner health failures held error=last_error",
    empty="All receivers are healthy.",
)


def _of_attempt(cell: Callable[[Any], object]) -> CellSource:
    return lambda row: cell(row[1]) if row[1] else None


LOG = table(
    "attempts",
    ("notification", lambda row: row[0]["notification_id"]),
    ("status", lambda row: row[0]["status"]),
    ("topic", lambda row: row[0]["subject"]),
    ("attempt at", _of_attempt(lambda attempt: moment(attempt["started_at"]))),
    ("tries", _of_attempt(lambda attempt: sum(len(one["tries"]) for one in attempt["exchanges"]))),
    ("reason", lambda row: row[1]["why"] if row[1] else row[0]["held_reason"] or "Not attempted yet."),
    empty="No deliveries yet.",
)
FIELDS = columns(
    "id=subscription_id name owner state",
    ("health", health_of),
    ("reason", "state_reason"),
    ("verified", "is_verified"),
    ("filter", conditions),
    "held failures",
    ("last failure", or_never("last_failure_at")),
    "last_error",
    ("blocked until", "open_until"),
    "retry version",
)


@app.command("list")
@filtered(SUBSCRIPTION_FILTERS)
def list_(filters: dict[str, Any], limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List subscriptions by name."""
    show_table(central().get("subscriptions", limit=limit, cursor=cursor, **filters), TABLE)


@app.command()
def unhealthy() -> None:
    """List the subscriptions whose receivers fail, blocked ones first."""
    found = central().get("subscriptions", "unhealthy")
    show_table(found, UNHEALTHY)


@app.command()
def show(subscription_id: SubscriptionArgument) -> None:
    """Show a subscription with its settings. Secrets are not shown."""
    found = central().get("subscriptions", subscription_id)
    show_fields(
        found,
        FIELDS,
        *found["settings"].items(),
        *((name, f"({state})") for name, state in found["secrets"].items()),
    )


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the subscription.")],
    url: Annotated[str, typer.Option(help="URL that receives the requests; https.")],
    owner: Annotated[
        str | None,
        typer.Option(help="Who receives the events, for example a team; a subscriber's own owner unless given."),
    ] = None,
    filter_: FilterOption = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help=SET_HELP)] = None,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    retry: RetryPolicyOption = None,
) -> None:
    """Add a subscription. The signing secret is generated unless given, and printed once.

    One that a subscriber adds is held until its receiver answers `subscriptions test` with 2xx.
    """
    body = {
        "name": name,
        "owner": owner,
        "filter": read_entries(filter_ or ["topic=*"]),
        "settings": {"url": url, **read_settings(set_ or [])},
        "secrets": read_secrets(secret or [], secret_file or []),
        "retry": retry,
    }
    added = central().post("subscriptions", body=body)
    done(added, f"Added subscription {added['subscription_id']}.")
    _print_secret(added)
    _print_next_step(added)


@app.command()
def change(
    subscription_id: SubscriptionArgument,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    url: Annotated[str | None, typer.Option(help="New URL.")] = None,
    filter_: FilterOption = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help=f"{SET_HELP} name=null restores the default.")] = None,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    clear_secret: Annotated[list[str] | None, typer.Option(help="Secret to remove. Repeatable.")] = None,
    retry: RetryPolicyOption = None,
) -> None:
    """Change a subscription. Everything not given stays; waiting notifications use the new values.

    Give auth_secret again (--secret) if the host of the URL or token URL changes. After a subscriber changed the URL,
    notifications are held until the receiver answers `subscriptions test` with 2xx.
    """
    client = central()
    settings = {**read_settings(set_ or []), **({"url": url} if url is not None else {})}
    secrets: dict[str, object] = {**read_secrets(secret or [], secret_file or []), **dict.fromkeys(clear_secret or [])}
    body: dict[str, Any] = {"settings": settings, "secrets": secrets}
    body |= {"name": name} if name is not None else {}
    body |= {"filter": read_entries(filter_)} if filter_ else {}
    body |= {"retry": retry} if retry is not None else {}
    if len(body) == 2 and not settings and not secrets:
        raise InvalidInput("cli.nothing", "nothing to change: give at least one option")
    body["version"] = client.get("subscriptions", subscription_id)["version"]
    changed = client.patch("subscriptions", subscription_id, body=body)
    done(changed, f"Changed subscription {changed['name']}.")
    _print_next_step(changed)


@app.command()
def rotate(
    subscription_id: SubscriptionArgument, secret: SecretOption = None, secret_file: SecretFileOption = None
) -> None:
    """Replace the signing secret. For 24 hours requests are signed with the former one too."""
    client = central()
    given = read_secrets(secret or [], secret_file or [])
    if given.keys() - {"secret"}:
        raise InvalidInput("cli.secret", "only `secret` can be rotated; use `change` for others", field="--secret")
    version = client.get("subscriptions", subscription_id)["version"]
    body = {"version": version, "secret": given.get("secret")}
    rotated = client.post("subscriptions", subscription_id, "rotate", body=body)
    done(rotated, f"Rotated the secret of {rotated['name']}.")
    _print_secret(rotated)


@app.command("test")
def test_receiver(subscription_id: SubscriptionArgument) -> None:
    """Send a signed test event to the receiver and print the conversation. Exits with 1 unless it answers with 2xx.

    An unverified subscription becomes active by a test that is answered with 2xx.
    """
    show_test(central(TEST_S).post("subscriptions", subscription_id, "test", body={}))


@app.command()
def pause(subscription_id: SubscriptionArgument, reason: ReasonOption = None) -> None:
    """Hold its notifications, new ones too, until it is resumed."""
    _move(subscription_id, "pause", "Paused", reason)


@app.command()
def resume(subscription_id: SubscriptionArgument) -> None:
    """End a pause; held notifications are sent."""
    _move(subscription_id, "resume", "Resumed", None)


@app.command()
def disable(subscription_id: SubscriptionArgument, reason: ReasonOption = None) -> None:
    """Create no more notifications for it, and park the waiting ones."""
    _move(subscription_id, "disable", "Disabled", reason)


@app.command()
def enable(
    subscription_id: SubscriptionArgument,
    since: Annotated[
        str | None, typer.Option("--from", help="Also send the events since this time: 2026-11-15T08:00:00Z.")
    ] = None,
    new_only: Annotated[bool, typer.Option("--new-only", help="Send new events only.")] = False,
) -> None:
    """Enable a disabled subscription, and say from when on it gets events: --from or --new-only."""
    if (since is None) != new_only:
        raise InvalidInput("cli.both", "give either --from or --new-only", field="--from")
    client = central()
    version = client.get("subscriptions", subscription_id)["version"]
    body = {"version": version, "resume_from": since}
    enabled = client.post("subscriptions", subscription_id, "enable", body=body)
    done(enabled, f"Enabled subscription {enabled['name']}.")


@app.command()
@filtered(DELIVERY_FILTERS)
def log(
    filters: dict[str, Any],
    subscription_id: SubscriptionArgument,
    limit: LimitOption = 20,
    cursor: CursorOption = None,
) -> None:
    """Show the delivery log: each attempt with its tries and the reason of its result, newest notification first.

    `fieldpost notifications log ID` shows the requests and responses of one notification.
    """
    found = central().get("subscriptions", subscription_id, "deliveries", limit=limit, cursor=cursor, **filters)
    rows = [(one, attempt) for one in found["deliveries"] for attempt in one["attempts"][::-1] or [None]]
    show_table(found if is_json() else {**found, "attempts": rows}, LOG)


@app.command()
def recover(
    subscription_id: SubscriptionArgument,
    since: Annotated[str, typer.Option("--from", help="Since when: 2026-11-15T08:00:00Z.")],
    reason: ReasonOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what it would retry and create.")] = False,
) -> None:
    """Retry the parked notifications of events since a time, and create the missing ones.

    Central goes on if you interrupt the command. Exit code 5: some were refused.
    """
    client = central()
    if dry_run:
        show_fields(client.get("subscriptions", subscription_id, "recover", since=since), PREVIEW)
        return
    body = {"since": since, **({"reason": reason} if reason else {})}
    started = client.post("subscriptions", subscription_id, "recover", body=body)
    follow_action(client, started)


@app.command()
def remove(subscription_id: SubscriptionArgument, reason: ReasonOption = None) -> None:
    """Create no more notifications for it, and discard the waiting ones. Its record stays for history."""
    _move(subscription_id, "remove", "Removed", reason)


def _move(subscription_id: str, verb: str, done_word: str, reason: str | None) -> None:
    client = central()
    version = client.get("subscriptions", subscription_id)["version"]
    changed = client.post("subscriptions", subscription_id, verb, body={"version": version, "reason": reason})
    done(changed, f"{done_word} subscription {changed['name']}.")


def _print_secret(shown: dict[str, Any]) -> None:
    if shown["new_secret"] and not is_json():
        print(f"Signing secret, shown only once: {shown['new_secret']}")


def _print_next_step(shown: dict[str, Any]) -> None:
    if not shown["is_verified"] and not is_json():
        print(
            "It is unverified: its notifications are held until the receiver answers a signed test with 2xx. Run\n"
            f"    fieldpost subscriptions test {shown['subscription_id']}"
        )


def read_entries(given: list[str]) -> list[dict[str, Any]]:
    entries = (parse_entry(text, "--filter") for text in given)
    names = ("topic", "action", "resource", "attributes", "rule")
    return [{name: getattr(entry, name) for name in names} for entry in entries]
