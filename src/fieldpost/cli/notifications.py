"""`fieldpost notifications`: look, retry, discard."""

from typing import Annotated, Any

import typer

from fieldpost.cli.client import (
    TOKEN_FILE_DEFAULT,
    URL_DEFAULT,
    Client,
    JsonOption,
    TokenFileOption,
    UrlOption,
)
from fieldpost.cli.output import moment, print_fields, print_json, print_table

app = typer.Typer(help="Notifications at central.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The notification's id.")]


@app.command("list")
def list_(
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these: pending, retrying, delivered, parked, discarded; repeatable.", show_default=False
        ),
    ] = None,
    list_name: Annotated[str | None, typer.Option("--list", help="Only of this list.", show_default=False)] = None,
    site: Annotated[str | None, typer.Option(help="Only of this site.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show notifications, newest first."""
    found = Client(url, token_file).get(
        "notifications", status=status or None, list=list_name, site=site, limit=limit, cursor=cursor
    )
    if as_json:
        print_json(found)
        return
    print_table(
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
    )
    if found["next_cursor"]:
        print(f"\nThere are more: --cursor {found['next_cursor']}")


@app.command()
def show(
    notification_id: IdArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one notification with its targets, attempts and audit entries."""
    found = Client(url, token_file).get("notifications", notification_id)
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
    print("".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in found["body"]))


@app.command()
def explain(
    notification_id: IdArgument, url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT
) -> None:
    """Say in one sentence why a notification stands where it stands, and what happens next."""
    print(Client(url, token_file).get("notifications", notification_id)["why"])


@app.command()
def retry(
    notification_id: IdArgument, url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT
) -> None:
    """Try a parked notification again, for the targets that failed."""
    print(f"{notification_id} is {_act('retry', notification_id, url, token_file)['status']} again.")


@app.command()
def discard(
    notification_id: IdArgument, url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT
) -> None:
    """Give a parked notification up for good; its row stays."""
    print(f"{notification_id} is {_act('discard', notification_id, url, token_file)['status']}.")


def _act(act: str, notification_id: str, url: str, token_file: Any) -> dict[str, Any]:
    client = Client(url, token_file)
    version = client.get("notifications", notification_id)["version"]
    return client.post("notifications", notification_id, act, body={"version": version})


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
