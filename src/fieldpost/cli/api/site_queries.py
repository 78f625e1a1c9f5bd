"""Looks at a site over its control connection: how it is, its event log, its rejected box."""

from typing import Annotated, Any

import typer

from fieldpost.cli.api import intents
from fieldpost.cli.api.filters import FromOption, ToOption
from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_fields, print_json, show_table

SiteArgument = Annotated[str, typer.Argument(metavar="NAME", help="The site's name.")]


def health(
    name: SiteArgument,
    is_history: Annotated[bool, typer.Option("--history", help="How it was during the last day instead.")] = False,
    since: FromOption = None,
    until: ToOption = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show how a site is, as it reported last, or how it was."""
    if is_history or since or until:
        _history(Client(url, token_file), name, since, until, as_json)
        return
    found = Client(url, token_file).get("site-health", name)
    if as_json:
        print_json(found)
        return
    print_fields(health_fields(found["site"]))


def _history(client: Client, name: str, since: str | None, until: str | None, as_json: bool) -> None:
    found = client.get("site-health", name, "history", **{"from": since, "to": until})
    show_table(
        found,
        as_json,
        ("from", "link", "waiting", "oldest, s", "parked", "rejected"),
        [
            (moment(p["at"]), p["link"], p["depth"], round(p["oldest_age_s"]), p["parked"], p["rejected"])
            for p in found["points"]
        ],
        "Nothing was reported in that time.",
    )


def health_fields(one: dict[str, Any]) -> list[tuple[str, object]]:
    """What a site reported, for people."""
    mirror = one["mirror"] or {}
    return [
        ("site", one["name"]),
        ("link", "revoked" if one["revoked_at"] else one["link"]),
        ("reported", moment(one["reported_at"]) or "never"),
        ("agent", one["version"]),
        ("waiting", backlog(one)),
        ("oldest", None if not one["oldest_age_s"] else f"{one['oldest_age_s']:.0f} s"),
        ("parked", one["parked"]),
        ("rejected", one["rejected"]),
        ("forwarding", None if one["is_forwarding"] is None else one["forward_error"] or "well"),
        ("disk free", None if one["disk_free_bytes"] is None else f"{one['disk_free_bytes'] / 1e9:.1f} GB"),
        ("clock", None if one["clock_offset_s"] is None else f"{round(one['clock_offset_s'], 1) + 0.0:+.1f} s"),
        ("events, 1 h", _counts(one["events"])),
        ("open intents", one["open_intents"]),
        ("mirror whole", moment(mirror.get("reconciled_at"))),
        ("buffer replaced", moment(mirror.get("replaced_at"))),
        ("last refusal", mirror.get("last_refusal")),
    ]


def backlog(one: dict[str, Any]) -> str | None:
    """What waits at a site, in few words."""
    return None if one["backlog"] is None else _counts(one["backlog"]) or "nothing"


def events(
    name: SiteArgument,
    severity: Annotated[str | None, typer.Option(help="info, warning or error.", show_default=False)] = None,
    kind: Annotated[str | None, typer.Option(help="Such as parked or rejected.", show_default=False)] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="Only of this operation or notification.", show_default=False)
    ] = None,
    since: Annotated[str | None, typer.Option("--from", help="Then or later.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option("--to", help="Before then.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    wait: intents.WaitOption = 10.0,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Ask a site for its event log."""
    given = {
        "limit": limit,
        "severity": severity,
        "kind": kind,
        "message_id": message_id,
        "from": since,
        "to": until,
        "cursor": cursor,
    }
    answer = _ask(Client(url, token_file), name, "query_events", given, wait)
    show_table(
        answer,
        as_json,
        ("when", "severity", "what", "about", "target", "text"),
        [
            (moment(row["occurred_at"]), row["severity"], row["kind"], row["message_id"], row["target"], row["text"])
            for row in answer["rows"]
        ],
        "There is no such entry.",
        more=answer.get("next"),
    )


def rejected(
    name: SiteArgument,
    limit: Annotated[int, typer.Option(help="At most so many, the longest there first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    wait: intents.WaitOption = 10.0,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Ask a site which notifications lie in its rejected box."""
    answer = _ask(Client(url, token_file), name, "list_rejected", {"limit": limit, "cursor": cursor}, wait)
    show_table(
        answer,
        as_json,
        ("id", "rejected", "list", "subject", "code", "error"),
        [
            (
                row["notification_id"],
                moment(row["rejected_at"]),
                row.get("list_name"),
                row.get("subject"),
                row["code"],
                row["error"],
            )
            for row in answer["rows"]
        ],
        "Nothing lies there.",
        more=answer.get("next"),
    )


def resubmit(
    name: SiteArgument,
    notification_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The notifications' ids.")],
    reason: intents.IntentReasonOption = None,
    wait: intents.WaitOption = 10.0,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Have a site forward notifications of its rejected box once more."""
    client = Client(url, token_file)
    intents.act(
        client,
        name,
        "resubmit_rejected",
        notification_ids,
        "is forwarded again",
        reason=reason,
        wait_s=wait,
        as_json=as_json,
    )


def discard_rejected(
    name: SiteArgument,
    notification_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The notifications' ids.")],
    reason: intents.IntentReasonOption = None,
    wait: intents.WaitOption = 10.0,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Have a site give up notifications of its rejected box for good."""
    client = Client(url, token_file)
    intents.act(
        client, name, "discard_rejected", notification_ids, "is discarded", reason=reason, wait_s=wait, as_json=as_json
    )


def _ask(client: Client, site: str, kind: str, given: dict[str, Any], wait_s: float) -> dict[str, Any]:
    arguments = {name: value for name, value in given.items() if value is not None}
    return intents.answer_of(intents.give(client, site, kind, wait_s, arguments=arguments), site)


def _counts(counts: dict[str, int] | None) -> str | None:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) if counts else None
