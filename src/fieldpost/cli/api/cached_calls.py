"""`fieldpost cached-calls`: the cached calls of the sites, and what to do about parked ones."""

from typing import Annotated

import typer

from fieldpost.cli.api import intents
from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_fields, print_json, say, show_table

app = typer.Typer(help="Cached calls at the sites, as these report them.", no_args_is_help=True)

CallSiteArgument = Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")]
CallIdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="The operations' ids.")]


@app.command("list")
def list_(
    site: Annotated[str | None, typer.Option(help="Only of this site.", show_default=False)] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these: pending, retrying, delivered, parked, failed, discarded; repeatable.", show_default=False
        ),
    ] = None,
    category: Annotated[str | None, typer.Option(help="external_call or database_write.", show_default=False)] = None,
    target: Annotated[str | None, typer.Option(help="Words that the target holds.", show_default=False)] = None,
    since: Annotated[str | None, typer.Option("--from", help="First seen then or later.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option("--to", help="First seen before then.", show_default=False)] = None,
    stuck: Annotated[bool, typer.Option("--stuck", help="Only those pending or retrying for too long.")] = False,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show cached calls as their sites reported them, newest first."""
    times = {"from": since, "to": until}
    found = Client(url, token_file).get(
        "cached-calls",
        site=site,
        status=status or None,
        category=category,
        target=target,
        stuck="true" if stuck else None,
        limit=limit,
        cursor=cursor,
        **times,
    )
    show_table(
        found,
        as_json,
        ("site", "id", "issued", "status", "target", "retries", "last error"),
        [
            (
                one["site"],
                one["call_id"],
                moment(one["created_at"]),
                _status(one["status"], is_stuck=one["is_stuck"], is_gone=bool(one["gone_at"])),
                one["target"],
                one["retry_count"],
                one["last_error"],
            )
            for one in found["cached_calls"]
        ],
        "There is no such call.",
        more=found["next_cursor"],
    )


@app.command()
def show(
    site: CallSiteArgument,
    call_id: Annotated[str, typer.Argument(metavar="ID", help="The operation's id.")],
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one cached call, and what was asked for it."""
    found = Client(url, token_file).get("cached-calls", call_id, site=site)
    if as_json:
        print_json(found)
        return
    one = found["cached_call"]
    print_fields(
        [
            ("id", one["call_id"]),
            ("site", one["site"]),
            ("status", _status(one["status"], is_stuck=one["is_stuck"], is_gone=bool(one["gone_at"]))),
            ("target", f"{one['target']} ({one['category']})"),
            ("retries", one["retry_count"]),
            ("last error", one["last_error"]),
            ("http status", one["http_status"]),
            ("instance", one["instance"]),
            ("script", one["script"]),
            ("execution", one["execution_id"]),
            ("issued", moment(one["created_at"])),
            ("changed", moment(one["updated_at"])),
            ("ended", moment(one["terminal_at"])),
            ("reported", moment(one["received_at"])),
            ("mirror whole", moment(found["reconciled_at"])),
        ]
    )
    for intent in found["intents"]:
        said = f"{intent['outcome']}: {intent['detail'] or ''}".rstrip(": ") if intent["outcome"] else ""
        print(
            f"{intent['kind']} by {intent['actor']}, {moment(intent['created_at'])}: {intent['state']} {said}".rstrip()
        )


@app.command()
def retry(
    site: CallSiteArgument,
    call_ids: CallIdsArgument,
    reason: intents.IntentReasonOption = None,
    wait: intents.WaitOption = 10.0,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Have parked calls tried again at their site; while it is away the intent waits for it."""
    client = Client(url, token_file)
    intents.act(client, site, "retry", call_ids, "is tried again", reason=reason, wait_s=wait, as_json=as_json)


@app.command()
def discard(
    site: CallSiteArgument,
    call_ids: CallIdsArgument,
    reason: intents.IntentReasonOption = None,
    wait: intents.WaitOption = 10.0,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Have parked calls given up for good at their site; while it is away the intent waits for it."""
    client = Client(url, token_file)
    intents.act(client, site, "discard", call_ids, "is discarded", reason=reason, wait_s=wait, as_json=as_json)


@app.command()
def parked(
    site: CallSiteArgument,
    limit: Annotated[int, typer.Option(help="At most so many, the oldest first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    wait: intents.WaitOption = 10.0,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Ask the site itself which of its calls are parked."""
    arguments = {"limit": limit} | ({"cursor": cursor} if cursor else {})
    client = Client(url, token_file)
    answer = intents.answer_of(intents.give(client, site, "list_parked", wait, arguments=arguments), site)
    show_table(
        answer,
        as_json,
        ("id", "issued", "target", "retries", "last error"),
        [
            (row["call_id"], moment(row["created_at"]), row["target"], row["retry_count"], row["last_error"])
            for row in answer["rows"]
        ],
        "Nothing is parked there.",
        more=answer.get("next"),
    )


@app.command()
def reconcile(
    site: CallSiteArgument,
    wait: intents.WaitOption = 10.0,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Read all calls of a site anew from the beginning."""
    given = intents.give(Client(url, token_file), site, "reconcile", wait)
    intents.answer_of(given, site)
    say({"intents": given}, as_json, f"The calls of {site} are being read anew.")


def _status(status: str, *, is_stuck: bool, is_gone: bool) -> str:
    if is_gone:
        return f"{status} (the site no longer knows it)"
    return f"{status} (stuck)" if is_stuck else status
