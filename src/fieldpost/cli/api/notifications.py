"""`fieldpost notifications`: list, show, send, retry and discard notifications at central."""

import sys
from secrets import token_hex
from typing import Annotated, Any

import typer

from fieldpost.cli.api.bulk_actions import BulkRequest
from fieldpost.cli.api.watching import WatchOption, watch
from fieldpost.cli.arguments import CursorOption, LimitOption, NotificationIdArgument, ReasonOption, YesOption
from fieldpost.cli.filters import BULK_FILTERS, filtered
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import (
    CellSource,
    Table,
    columns,
    done,
    moment,
    print_json,
    print_lines,
    print_rows,
    short,
    show_fields,
    show_table,
    table,
)
from fieldpost.core.search.filters import NOTIFICATION_FILTERS

app = typer.Typer(help="Notifications at central.", no_args_is_help=True)

LIVE = ("pending", "retrying")
"""Statuses that can change without an operator."""

SelectedIdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of the notifications.")]
AllOption = Annotated[bool, typer.Option("--all", help="Select all parked notifications.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print how many notifications are selected.")]


def _status(one: Any) -> str:
    return str(one["status"]) + (" (stuck)" if one["is_stuck"] else "")


NOTIFICATIONS = table(
    "notifications",
    "id=notification_id arrived=created_at",
    ("status", _status),
    "site=source_site list=list_name attempts=attempt_count",
    ("subject", short("subject", 40)),
    ("last error", short("last_error", 60)),
    empty="No matching notifications.",
)
GROUPS = Table(
    "groups",
    {"key": "key", "parked": "count", "last": "last_parked_at", "error": short("fingerprint", 100)},
    empty="No parked notifications.",
)
FIELDS = columns(
    "id=notification_id",
    ("status", _status),
    "why subject",
    ("list", lambda one: f"{one['list_name']} ({one['type']})"),
    "site=source_site instance=source_instance script=source_script sent=site_enqueued_at",
    "arrived=created_at delivered=delivered_at next_attempt=next_attempt_at",
    ("held", lambda one: f"{one['held_by']}: {one['held_reason']}" if one["held_by"] else None),
    "last_error",
    ("part of", lambda one: f"{one['whole_id']} ({one['whole_list']})" if one["whole_id"] else None),
)
PARTS: dict[str, dict[str, CellSource]] = {
    "parts": columns(
        "list=list_name",
        ("status", _status),
        "attempts=attempt_count id=notification_id",
        ("last error", short("last_error", 60)),
    ),
    "targets": {"address": "address", "status": "status", "error": "error"},
    "attempts": columns(
        "started=started_at cycle",
        ("outcome", lambda one: one["outcome"] or "running"),
        "phase ms=duration_ms",
        ("reply or error", lambda one: one["error"] or one["reply"]),
    ),
    "audit": columns("at=occurred_at kind status actor", ("error", short("error_message", 80))),
}


@app.command("list")
@filtered(NOTIFICATION_FILTERS)
def list_(filters: dict[str, Any], limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List notifications, newest first."""
    show_table(central().get("notifications", limit=limit, cursor=cursor, **filters), NOTIFICATIONS)


@app.command()
def send(
    list_name: Annotated[str, typer.Argument(metavar="LIST", help="List to notify.")],
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Subject, one line.")],
    body: Annotated[str, typer.Argument(metavar="BODY", help="Text; - reads it from stdin.")],
    key: Annotated[str | None, typer.Option(help="Idempotency key: repeated sends create one notification.")] = None,
) -> None:
    """Send a notification through central's API, without a site, and print its id.

    Give --key to repeat a send safely after a lost response.
    """
    text = sys.stdin.read() if body == "-" else body
    content = {"list_name": list_name, "subject": subject, "body": text}
    headers = {"Idempotency-Key": key if key is not None else f"cli-{token_hex(16)}"}
    sent = central().post("notifications", body=content, headers=headers)
    done(sent, sent["notification_id"])


@app.command()
def show(notification_id: NotificationIdArgument, is_watched: WatchOption = False) -> None:
    """Show a notification with its targets, attempts and audit entries."""
    found = _read(notification_id, is_watched)
    show_fields(found, FIELDS)
    if is_json():
        return
    for part, shown in PARTS.items():
        if found[part]:
            print(f"\n{part.capitalize()}")
            print_rows(shown, found[part])
    print("\nBody")
    body = found["body"] if found["body"] is not None else "(only operators and administrators can read the body)"
    print("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in body))


@app.command()
def explain(notification_id: NotificationIdArgument, is_watched: WatchOption = False) -> None:
    """Explain why a notification has its status, and what happens next."""
    found = _read(notification_id, is_watched)
    done({name: found[name] for name in ("notification_id", "status", "why")}, found["why"])


@app.command()
def log(notification_id: NotificationIdArgument) -> None:
    """Show the requests and responses of a webhook: tries, times, headers, and the first kilobyte of the bodies.

    Values of signature and credentials are hidden. Responses are for administrators and the owner of the subscription.
    """
    found = central().get("notifications", notification_id)
    if is_json():
        print_json({name: found[name] for name in ("notification_id", "request_body", "attempts")})
        return
    if not found["attempts"]:
        print("Not attempted yet.")
    for number, attempt in enumerate(found["attempts"], 1):
        print_lines(
            [*([""] if number > 1 else []), f"Attempt {number}, {moment(attempt['started_at'])}: {attempt['why']}"]
        )
        for one in attempt["exchanges"]:
            print_lines(exchange_lines(one, found["request_body"]))


@app.command()
def groups() -> None:
    """Group parked notifications by error. The key is for --error."""
    found = central().get("notifications", "parked-groups")
    show_table(found, GROUPS)
    if not found["is_whole"] and not is_json():
        print("\nOnly the newest parked notifications were grouped; there are more.")


@app.command()
def resend(notification_id: NotificationIdArgument) -> None:
    """Send a delivered or parked notification of a subscription again, under the same id."""
    client = central()
    version = client.get("notifications", notification_id)["version"]
    changed = client.post("notifications", notification_id, "resend", body={"version": version})
    done(changed, f"Notification {notification_id} is sent again.")


@app.command()
@filtered(BULK_FILTERS)
def retry(
    filters: dict[str, Any],
    ids: SelectedIdsArgument = None,
    is_all: AllOption = False,
    reason: ReasonOption = None,
    in_stages: Annotated[
        bool, typer.Option("--in-stages", help="Retry one, then ten, then the rest; stop if the same error returns.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Retry parked notifications, selected by id or filter. Targets that already have it are skipped.

    Several notifications need a --reason. Central continues if you interrupt the command. Exit code 5: some were
    refused.
    """
    _act(BulkRequest("retry", ids or [], filters, is_all, reason, dry_run, yes, in_stages), "Retrying {}.")


@app.command()
@filtered(BULK_FILTERS)
def discard(
    filters: dict[str, Any],
    ids: SelectedIdsArgument = None,
    is_all: AllOption = False,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Discard parked notifications, selected by id or filter. Their records are kept.

    Several notifications need a --reason. Central continues if you interrupt the command. Exit code 5: some were
    refused.
    """
    _act(BulkRequest("discard", ids or [], filters, is_all, reason, dry_run, yes), "Discarded {}.")


def _act(request: BulkRequest, text: str) -> None:
    """One id without any option needs no bulk action."""
    client = central()
    if len(request.ids) == 1 and not (request.wanted or request.is_all or request.reason or request.is_dry):
        (notification_id,) = request.ids
        version = client.get("notifications", notification_id)["version"]
        changed = client.post("notifications", notification_id, request.verb, body={"version": version})
        done(changed, text.format(notification_id))
    else:
        request.run(client)


def exchange_lines(one: Any, request_body: str | None) -> list[str]:
    """The tries, request and response of an attempt to one URL, as lines."""
    lines = [f"  POST {one['url']}"]
    for number, made in enumerate(one["tries"], 1):
        where = f" ({made['phase']})" if made["phase"] else ""
        result = made["status"] or f"{made['error']}{where}"
        lines.append(f"  try {number}, after {made['offset_ms']} ms, took {made['duration_ms']} ms: {result}")
    lines += [f"  > {name}: {value}" for name, value in one["request_headers"].items()]
    lines += [f"  > {line}" for line in (request_body or "").splitlines()]
    if one["status"] is None:
        return [*lines, "  < no response"]
    if one["response_headers"] is None:
        return [*lines, f"  < {one['status']} (only administrators and the owner can read the response)"]
    lines += [f"  < {one['status']}", *(f"  < {name}: {value}" for name, value in one["response_headers"].items())]
    return lines + [f"  < {line}" for line in one["response_body"].splitlines()]


def _read(notification_id: str, is_watched: bool) -> dict[str, Any]:
    client = central()

    def read() -> dict[str, Any]:
        return client.get("notifications", notification_id)

    return watch(read, lambda found: found["status"] not in LIVE, "status") if is_watched else read()
