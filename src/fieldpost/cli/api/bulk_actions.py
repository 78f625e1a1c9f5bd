"""`fieldpost bulk-actions`, and the start of one by `notifications retry` and `notifications discard`.

A bulk action runs at central. Following it may stop at any time, by Ctrl-C or a lost connection, and resume: the
action's id is printed before anything is done.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli.arguments import CursorOption, LimitOption
from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import columns, done, print_json, show_fields, show_table, table
from fieldpost.core.quantities import plural

if TYPE_CHECKING:
    from fieldpost.link.http.client import ApiClient

app = typer.Typer(help="Bulk actions: retry or discard many parked notifications.", no_args_is_help=True)

EXIT_INCOMPLETE = 5
"""The exit code of a bulk action that could not do everything: the same as for a conflict."""
POLL_S = 0.3

BulkActionIdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the bulk action.")]


def _selection(action: Any) -> str:
    wanted = action["filter"]
    return "selected ids" if wanted is None else ", ".join(f"{name} {value}" for name, value in wanted.items())


BULK_ACTIONS = table(
    "bulk_actions",
    "id=action_id started=created_at verb status total done refused by=actor reason",
    empty="No bulk actions yet. Start one: fieldpost notifications retry --list LIST --reason …",
)
ROWS = table(
    "rows",
    "id=notification_id",
    ("result", lambda one: one["outcome"] or "waiting"),
    "status_found=current_status at=settled_at",
    empty="No notification with this result.",
)
FIELDS = columns(
    "id=action_id verb status note",
    ("selection", _selection),
    "reason by=actor started=created_at ended=ended_at total done refused",
)


@app.command("list")
def list_(limit: LimitOption = 20) -> None:
    """List bulk actions, newest first."""
    show_table(central().get("bulk-actions", limit=limit), BULK_ACTIONS)


@app.command()
def show(
    action_id: BulkActionIdArgument,
    follow: Annotated[bool, typer.Option("--follow", "--watch", help="Follow the progress until it ends.")] = False,
) -> None:
    """Show the progress of a bulk action. With --follow, exit code 5 means that some rows were refused."""
    client = central()
    found = client.get("bulk-actions", action_id)
    if follow:
        follow_action(client, found)
    else:
        show_fields(found, FIELDS)


@app.command()
def rows(
    action_id: BulkActionIdArgument,
    outcome: Annotated[str | None, typer.Option(help="Only this result: done, conflict or gone.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """List the notifications of a bulk action with their results."""
    show_table(central().get("bulk-actions", action_id, "rows", outcome=outcome, limit=limit, cursor=cursor), ROWS)


@app.command()
def cancel(action_id: BulkActionIdArgument) -> None:
    """Stop a bulk action. Finished rows keep their result."""
    ended = central().post("bulk-actions", action_id, "cancel", body={})
    done(ended, f"Cancelled bulk action {action_id} after {ended['done']} of {plural(ended['total'], 'notification')}.")


@dataclass(frozen=True)
class BulkRequest:
    """One bulk action as the command line asks for it."""

    verb: str
    ids: list[str]
    wanted: dict[str, Any]
    is_all: bool
    reason: str | None
    is_dry: bool
    is_sure: bool
    in_stages: bool = False

    def run(self, client: "ApiClient") -> None:
        """Count, confirm on a terminal, start and follow; a dry run only counts."""
        self._check()
        found = self._count(client)
        count = plural(found["count"], "parked notification")
        text = f"{self.verb} {'' if found['is_whole'] else 'at least '}{count}"
        if self.is_dry:
            done(found, f"Would {text}.")
            return
        if not self.is_sure and sys.stdin.isatty():
            typer.confirm(f"{text.capitalize()}?", abort=True, err=True)
        _start(client, self._body(found))

    def _check(self) -> None:
        if self.ids and (self.wanted or self.is_all):
            raise typer.BadParameter("give either ids or a filter, not both")
        if not self.ids and not self.wanted and not self.is_all:
            raise typer.BadParameter("give ids, a filter, or --all")
        if not self.reason and not self.is_dry:
            raise typer.BadParameter("a bulk action needs a --reason")

    def _count(self, client: "ApiClient") -> dict[str, Any]:
        if self.ids:
            return {"count": len(set(self.ids)), "is_whole": True, "as_of": None}
        return client.post("bulk-actions", "preview", body={"filter": self.wanted})

    def _body(self, found: dict[str, Any]) -> dict[str, Any]:
        selection: dict[str, Any] = {"filter": self.wanted, "as_of": found["as_of"]}
        if self.ids:
            selection = {"notifications": [{"notification_id": i} for i in self.ids]}
        return {"verb": self.verb, "reason": self.reason, "in_stages": self.in_stages, **selection}


def _start(client: "ApiClient", body: dict[str, Any]) -> None:
    action = client.post("bulk-actions", body=body)
    print(
        f"Bulk action {action['action_id']} started. It continues if you interrupt this command."
        f" Follow it: fieldpost bulk-actions show {action['action_id']} --follow",
        file=sys.stderr,
        flush=True,
    )
    follow_action(client, action)


def follow_action(client: "ApiClient", action: dict[str, Any]) -> None:
    """Print the progress to stderr until the action ends, then the result; exit with 5 if rows were refused."""
    from fieldpost.clock import SystemClock

    while action["ended_at"] is None:
        _print_progress(action)
        SystemClock().pause(POLL_S)
        action = client.get("bulk-actions", action["action_id"])
    _print_progress(action)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print_json(action) if is_json() else print(_summary(action))
    if action["status"] != "finished" or action["refused"]:
        raise typer.Exit(EXIT_INCOMPLETE)


def _print_progress(action: dict[str, Any]) -> None:
    # One overwritten line on a terminal; nothing where it would fill a log.
    if sys.stderr.isatty():
        is_gathering = action["status"] == "gathering"
        count = action["done"] + action["refused"]
        progress = f"{action['total']} found" if is_gathering else f"{count} of {action['total']}"
        print(f"\r{action['status']}: {progress}\x1b[K", end="", file=sys.stderr, flush=True)


def _summary(action: dict[str, Any]) -> str:
    verb = {"retry": "retried", "discard": "discarded"}[action["verb"]]
    parts = [f"{action['done']} of {action['total']} {verb}"]
    if action["conflicts"]:
        parts.append(f"{action['conflicts']} changed by someone else")
    if action["gone"]:
        parts.append(f"{action['gone']} no longer exist")
    if action["note"]:
        parts.append(action["note"])
    rest = (
        "" if not action["refused"] else f" See: fieldpost bulk-actions rows {action['action_id']} --outcome conflict"
    )
    return f"Bulk action {action['status']}: {'; '.join(parts)}.{rest}"
