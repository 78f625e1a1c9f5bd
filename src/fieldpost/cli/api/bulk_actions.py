"""`fieldpost bulk-actions`: what was begun on many notifications, and how `notifications retry|discard` begin it.

A bulk action goes on at central by itself. Following it may end at any time, by Ctrl-C or a lost connection, and begin
again: the act's id is on the terminal before anything is done.
"""

import sys
from typing import Annotated, Any

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_fields, print_json, say, show_table

app = typer.Typer(help="Bulk actions: one verb on many parked notifications.", no_args_is_help=True)

SOME_REFUSED = 5
"""The exit code when not all was done: as for a conflict."""
LOOK_EVERY_S = 0.3

BulkActionIdArgument = Annotated[str, typer.Argument(metavar="ACT", help="The act's id.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(help="At most so many, newest first.")] = 20,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the newest bulk actions."""
    found = Client(url, token_file).get("bulk-actions", limit=limit)
    show_table(
        found,
        as_json,
        ("act", "begun", "verb", "status", "total", "done", "refused", "by", "reason"),
        [
            (
                one["action_id"],
                moment(one["created_at"]),
                one["verb"],
                one["status"],
                one["total"],
                one["done"],
                one["refused"],
                one["actor"],
                one["reason"],
            )
            for one in found["bulk_actions"]
        ],
        "There was no bulk action yet. Begin one: fieldpost notifications retry --list LIST --reason …",
    )


@app.command()
def show(
    action_id: BulkActionIdArgument,
    follow: Annotated[bool, typer.Option("--follow", "--watch", help="Go on showing it until it has ended.")] = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show how far a bulk action has come. With --follow the exit code is 5 if not all was done."""
    client = Client(url, token_file)
    found = client.get("bulk-actions", action_id)
    if follow:
        follow_act(client, found, as_json)
    elif as_json:
        print_json(found)
    else:
        print_fields(_fields(found))


@app.command()
def rows(
    action_id: BulkActionIdArgument,
    outcome: Annotated[str | None, typer.Option(help="Only these: done, conflict, gone.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="At most so many.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where a page ended.", show_default=False)] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show what a bulk action came to for each notification."""
    found = Client(url, token_file).get("bulk-actions", action_id, "rows", outcome=outcome, limit=limit, cursor=cursor)
    show_table(
        found,
        as_json,
        ("id", "outcome", "it was", "when"),
        [
            (one["notification_id"], one["outcome"] or "waits", one["current_status"], moment(one["settled_at"]))
            for one in found["rows"]
        ],
        "There is no such notification in it.",
        more=found["next_cursor"],
    )


@app.command()
def cancel(
    action_id: BulkActionIdArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """End a bulk action where it stands; what was done stays done."""
    ended = Client(url, token_file).post("bulk-actions", action_id, "cancel", body={})
    say(ended, as_json, f"The act {action_id} is cancelled; {ended['done']} of {ended['total']} were done.")


def begin(client: Client, said: dict[str, Any], as_json: bool) -> None:
    """Start the act and follow it to its end."""
    act = client.post("bulk-actions", body=said)
    print(
        f"Bulk action {act['action_id']} has begun, and goes on if this is interrupted."
        f" Follow it: fieldpost bulk-actions show {act['action_id']} --follow",
        file=sys.stderr,
        flush=True,
    )
    follow_act(client, act, as_json)


def follow_act(client: Client, act: dict[str, Any], as_json: bool) -> None:
    """Tell the progress on stderr until the act has ended, then how; exits with 5 if not all was done."""
    from fieldpost.clock import SystemClock

    while act["ended_at"] is None:
        _tell_progress(act)
        SystemClock().pause(LOOK_EVERY_S)
        act = client.get("bulk-actions", act["action_id"])
    _tell_progress(act)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if as_json:
        print_json(act)
    else:
        print(_summary(act))
    if act["status"] != "finished" or act["refused"]:
        raise typer.Exit(SOME_REFUSED)


def _tell_progress(act: dict[str, Any]) -> None:
    # One line that is overwritten on a terminal; none at all where it would fill a log.
    if sys.stderr.isatty():
        is_gathering = act["status"] == "gathering"
        so_far = f"{act['total']} found" if is_gathering else f"{act['done'] + act['refused']} of {act['total']}"
        print(f"\r{act['status']}: {so_far}\x1b[K", end="", file=sys.stderr, flush=True)


def _summary(act: dict[str, Any]) -> str:
    did = {"retry": "retried", "discard": "discarded"}[act["verb"]]
    parts = [f"{act['done']} of {act['total']} {did}"]
    if act["conflicts"]:
        parts.append(f"{act['conflicts']} had been changed meanwhile")
    if act["gone"]:
        parts.append(f"{act['gone']} were gone")
    if act["note"]:
        parts.append(act["note"])
    rest = "" if not act["refused"] else f" See fieldpost bulk-actions rows {act['action_id']} --outcome conflict."
    return f"The act is {act['status']}: {'; '.join(parts)}.{rest}"


def _fields(act: dict[str, Any]) -> list[tuple[str, object]]:
    about = act["filter"]
    return [
        ("act", act["action_id"]),
        ("verb", act["verb"]),
        ("status", act["status"]),
        ("note", act["note"]),
        ("about", "a selection" if about is None else ", ".join(f"{name} {value}" for name, value in about.items())),
        ("reason", act["reason"]),
        ("by", act["actor"]),
        ("begun", moment(act["created_at"])),
        ("ended", moment(act["ended_at"])),
        ("total", act["total"]),
        ("done", act["done"]),
        ("refused", act["refused"]),
    ]
