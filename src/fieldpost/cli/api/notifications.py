"""`fieldpost notifications`: look, send, retry, discard."""

import sys
from secrets import token_hex
from typing import Annotated, Any

import typer

from fieldpost.cli.api.bulk_request import (
    AllOption,
    BulkRequest,
    DryRunOption,
    NotificationIdsArgument,
    ReasonOption,
    YesOption,
)
from fieldpost.cli.api.filters import (
    ErrorOption,
    FromOption,
    ListOption,
    OverdueOption,
    SiteOption,
    StatusOption,
    StuckOption,
    SubjectOption,
    ToOption,
    TypeOption,
    fields,
)
from fieldpost.cli.api.watching import WatchOption, watch
from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_fields, print_json, print_table, say, show_table

LIVE = ("pending", "retrying")
"""What still happens to a notification happens by itself."""

app = typer.Typer(help="Notifications at central.", no_args_is_help=True)

NotificationIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The notification's id.")]


@app.command("list")
def list_(
    status: StatusOption = None,
    type_: TypeOption = None,
    site: SiteOption = None,
    list_name: ListOption = None,
    since: FromOption = None,
    until: ToOption = None,
    stuck: StuckOption = False,
    overdue: OverdueOption = False,
    subject: SubjectOption = None,
    error: ErrorOption = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show notifications, newest first."""
    wanted = fields(type_, site, list_name, since, until, subject, error)
    found = Client(url, token_file).get(
        "notifications",
        status=status or None,
        stuck="true" if stuck else None,
        overdue="true" if overdue else None,
        limit=limit,
        cursor=cursor,
        **wanted,
    )
    show_table(
        found,
        as_json,
        ("id", "arrived", "status", "site", "list", "attempts", "subject", "last error"),
        [
            (
                one["notification_id"],
                moment(one["created_at"]),
                one["status"] + (" (stuck)" if one["is_stuck"] else ""),
                one["source_site"],
                one["list_name"],
                one["attempt_count"],
                _short(one["subject"], 40),
                _short(one["last_error"], 60),
            )
            for one in found["notifications"]
        ],
        "There is no such notification.",
        more=found["next_cursor"],
    )


@app.command()
def send(
    list_name: Annotated[str, typer.Argument(metavar="LIST", help="The list to be told.")],
    subject: Annotated[str, typer.Argument(help="One line.")],
    body: Annotated[str, typer.Argument(help="The text; - reads it from stdin.")],
    key: Annotated[
        str | None, typer.Option(help="Your own name for it: sent again, it is not doubled.", show_default=False)
    ] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Hand a notification in over the API, without a site, and print its id. It is on central's disk then.

    Where the answer is lost, only the same --key tells central that it is the same notification.
    """
    text = sys.stdin.read() if body == "-" else body
    said: dict[str, str] = {"list_name": list_name, "subject": subject, "body": text}
    headers = {"Idempotency-Key": key if key is not None else f"cli-{token_hex(16)}"}
    sent = Client(url, token_file).post("notifications", body=said, headers=headers)
    if as_json:
        print_json(sent)
    else:
        print(sent["notification_id"])


@app.command()
def show(
    notification_id: NotificationIdArgument,
    is_watched: WatchOption = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one notification with its targets, attempts and audit entries."""
    found = _look(Client(url, token_file), notification_id, is_watched)
    if as_json:
        print_json(found)
        return
    print_fields(_fields(found))
    _print_part(
        "Targets", ("address", "status", "error"), [(t["address"], t["status"], t["error"]) for t in found["targets"]]
    )
    _print_part(
        "Attempts",
        ("started", "cycle", "outcome", "phase", "ms", "reply or error"),
        [
            (
                moment(a["started_at"]),
                a["cycle"],
                a["outcome"] or "running",
                a["phase"],
                a["duration_ms"],
                a["error"] or a["reply"],
            )
            for a in found["attempts"]
        ],
    )
    _print_part(
        "Audit",
        ("when", "kind", "status", "actor", "error"),
        [
            (moment(e["occurred_at"]), e["kind"], e["status"], e["actor"], _short(e["error_message"], 80))
            for e in found["audit"]
        ],
    )
    print("\nBody")
    body = found["body"] if found["body"] is not None else "(the body is shown to operators and administrators)"
    print("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in body))


@app.command()
def explain(
    notification_id: NotificationIdArgument,
    is_watched: WatchOption = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Say in one sentence why a notification stands where it stands, and what happens next."""
    found = _look(Client(url, token_file), notification_id, is_watched)
    say({name: found[name] for name in ("notification_id", "status", "why")}, as_json, found["why"])


@app.command()
def groups(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show what is parked, grouped by what went wrong; the key goes into --error."""
    found = Client(url, token_file).get("notifications", "parked-groups")
    if as_json:
        print_json(found)
        return
    print_table(
        ("key", "parked", "last", "error"),
        [
            (one["key"], one["count"], moment(one["last_parked_at"]), _short(one["fingerprint"], 100))
            for one in found["groups"]
        ],
        "Nothing is parked.",
    )
    if not found["is_whole"]:
        print("\nThere are more: only the newest were looked at.")


@app.command()
def retry(
    ids: NotificationIdsArgument = None,
    type_: TypeOption = None,
    site: SiteOption = None,
    list_name: ListOption = None,
    since: FromOption = None,
    until: ToOption = None,
    subject: SubjectOption = None,
    error: ErrorOption = None,
    is_all: AllOption = False,
    reason: ReasonOption = None,
    in_stages: Annotated[
        bool,
        typer.Option("--in-stages", help="One, then ten, then the rest; halts when the same error comes back."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Try parked notifications again, for the targets that failed: these, or all that fit a filter.

    More than one needs a --reason. It goes on at central if this is interrupted. Exit code 5: not all could be done.
    """
    client = Client(url, token_file)
    wanted = fields(type_, site, list_name, since, until, subject, error)
    if _is_single(ids, wanted, is_all, reason, dry_run):
        changed = _act(client, "retry", _one(ids))
        say(changed, as_json, f"{_one(ids)} is {changed['status']} again.")
        return
    ask = BulkRequest("retry", ids or [], wanted, is_all, reason, dry_run, yes, in_stages)
    ask.carry_out(client, as_json)


@app.command()
def discard(
    ids: NotificationIdsArgument = None,
    type_: TypeOption = None,
    site: SiteOption = None,
    list_name: ListOption = None,
    since: FromOption = None,
    until: ToOption = None,
    subject: SubjectOption = None,
    error: ErrorOption = None,
    is_all: AllOption = False,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Give parked notifications up for good: these, or all that fit a filter; their rows stay.

    More than one needs a --reason. It goes on at central if this is interrupted. Exit code 5: not all could be done.
    """
    client = Client(url, token_file)
    wanted = fields(type_, site, list_name, since, until, subject, error)
    if _is_single(ids, wanted, is_all, reason, dry_run):
        changed = _act(client, "discard", _one(ids))
        say(changed, as_json, f"{_one(ids)} is {changed['status']}.")
        return
    BulkRequest("discard", ids or [], wanted, is_all, reason, dry_run, yes).carry_out(client, as_json)


def _is_single(ids: list[str] | None, wanted: dict[str, str], is_all: bool, reason: str | None, dry_run: bool) -> bool:
    """One notification, just as it is, needs no bulk action."""
    return len(ids or []) == 1 and not (wanted or is_all or reason or dry_run)


def _one(ids: list[str] | None) -> str:
    assert ids, "one was given"
    return ids[0]


def _act(client: Client, act: str, notification_id: str) -> dict[str, Any]:
    version = client.get("notifications", notification_id)["version"]
    return client.post("notifications", notification_id, act, body={"version": version})


def _look(client: Client, notification_id: str, is_watched: bool) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        return client.get("notifications", notification_id)

    return watch(look, lambda found: found["status"] not in LIVE, "status") if is_watched else look()


def _fields(found: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("id", found["notification_id"]),
        ("status", found["status"] + (" (stuck)" if found["is_stuck"] else "")),
        ("why", found["why"]),
        ("subject", found["subject"]),
        ("list", f"{found['list_name']} ({found['type']})"),
        ("site", found["source_site"]),
        ("instance", found["source_instance"]),
        ("script", found["source_script"]),
        ("sent", moment(found["site_enqueued_at"])),
        ("arrived", moment(found["created_at"])),
        ("delivered", moment(found["delivered_at"])),
        ("next attempt", moment(found["next_attempt_at"])),
        ("held", f"{found['held_by']}: {found['held_reason']}" if found["held_by"] else None),
        ("last error", found["last_error"]),
    ]


def _print_part(title: str, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    if rows:
        print(f"\n{title}")
        print_table(columns, rows, "")


def _short(text: str | None, length: int) -> str | None:
    return text if text is None or len(text) <= length else text[: length - 1] + "…"
