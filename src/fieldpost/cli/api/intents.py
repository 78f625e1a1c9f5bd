"""`fieldpost intents`: what was asked of sites; and how other commands ask and wait."""

from typing import Annotated, Any

import typer

from fieldpost.cli.api.watching import WatchOption, watch
from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_fields, print_json, say, show_table
from fieldpost.clock import SystemClock
from fieldpost.core.errors import Conflict, Unavailable

app = typer.Typer(help="Intents: what was asked of sites, and what came of it.", no_args_is_help=True)

POLL_S = 0.3

WaitOption = Annotated[
    float,
    typer.Option("--wait", help="How many seconds to wait for the site's answer; 0 for not at all.", min=0, max=3600),
]
IntentReasonOption = Annotated[str | None, typer.Option(help="Why, for the audit.", show_default=False)]
IntentArgument = Annotated[str, typer.Argument(metavar="ID", help="The intent's id.")]


@app.command("list")
def list_(
    site: Annotated[str | None, typer.Option(help="Only of this site.", show_default=False)] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only these: waiting, sent, done, cancelled, expired; repeatable.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many, newest first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show intents, newest first."""
    found = Client(url, token_file).get("intents", site=site, state=state or None, limit=limit, cursor=cursor)
    show_table(
        found,
        as_json,
        ("id", "given", "by", "site", "what", "about", "state", "outcome", "detail"),
        [
            (
                one["intent_id"],
                moment(one["created_at"]),
                one["actor"],
                one["site"],
                one["kind"],
                one["message_id"],
                one["state"],
                one["outcome"],
                one["detail"],
            )
            for one in found["intents"]
        ],
        "There is no such intent.",
        more=found["next_cursor"],
    )


@app.command()
def show(
    intent_id: IntentArgument,
    is_watched: WatchOption = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one intent and what the site answered."""
    client = Client(url, token_file)

    def look() -> dict[str, Any]:
        return client.get("intents", intent_id)

    found = watch(look, lambda intent: not is_open(intent), "state") if is_watched else look()
    if as_json:
        print_json(found)
        return
    print_fields(
        [
            ("id", found["intent_id"]),
            ("site", found["site"]),
            ("what", found["kind"]),
            ("about", found["message_id"]),
            ("by", found["actor"]),
            ("reason", found["reason"]),
            ("state", found["state"]),
            ("outcome", found["outcome"]),
            ("detail", found["detail"]),
            ("given", moment(found["created_at"])),
            ("expires", moment(found["expires_at"])),
            ("sent", moment(found["sent_at"])),
            ("done", moment(found["done_at"])),
        ]
    )
    if found["answer"]:
        print()
        print_json(found["answer"])


@app.command()
def cancel(
    intent_id: IntentArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Take back an intent that was not sent yet."""
    cancelled = Client(url, token_file).post("intents", intent_id, "cancel", body={})
    say(cancelled, as_json, f"The intent {intent_id} is cancelled.")


def give(client: Client, site: str, kind: str, wait_s: float, **more: Any) -> list[dict[str, Any]]:
    """Give an intent, or several, and wait so long for the site; as they are then."""
    body = {"site": site, "kind": kind} | {name: value for name, value in more.items() if value}
    given: list[dict[str, Any]] = client.post("intents", body=body)["intents"]
    clock = SystemClock()
    until = clock.monotonic() + wait_s
    while any(is_open(one) for one in given) and clock.monotonic() < until:
        clock.pause(min(POLL_S, max(0.0, until - clock.monotonic())))
        given = [client.get("intents", one["intent_id"]) if is_open(one) else one for one in given]
    return given


def is_open(intent: dict[str, Any]) -> bool:
    return intent["state"] in ("waiting", "sent")


def act(
    client: Client,
    site: str,
    kind: str,
    message_ids: list[str],
    done: str,
    *,
    reason: str | None,
    wait_s: float,
    as_json: bool,
) -> None:
    """Have a site act and say what became of each; raises if not all was done, so that scripts notice."""
    given = give(client, site, kind, wait_s, message_ids=message_ids, reason=reason)
    if as_json:
        print_json({"intents": given})
    for one in () if as_json else given:
        if is_open(one):
            print(f"{one['message_id']}: waits for the site {one['site']} (intent {one['intent_id']})")
        elif one["outcome"] == "applied":
            print(f"{one['message_id']}: {done}")
        else:
            print(f"{one['message_id']}: {one['outcome']}: {one['detail'] or ''}".rstrip(": "))
    if any(not is_open(one) and one["outcome"] != "applied" for one in given):
        raise Conflict("intent.not_applied", "not everything was applied", hint="see what is said of each")


def answer_of(given: list[dict[str, Any]], site: str) -> dict[str, Any]:
    """The site's answer to a look, or Unavailable when it has not come."""
    (one,) = given
    if is_open(one):
        raise Unavailable(
            "site.unreachable",
            f"the site {site} has not answered yet",
            hint=f"the question waits for it: fieldpost intents show {one['intent_id']}",
        )
    if one["outcome"] != "applied":
        raise Conflict("intent.not_applied", f"{one['outcome']}: {one['detail'] or ''}")
    answer: dict[str, Any] = one["answer"] or {"rows": []}
    return answer
