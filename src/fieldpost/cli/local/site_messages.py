"""`fieldpost site status`, `events`, `parked`, `retry`, `discard`, `rejected`: commands for an engineer at the site.

They read and change the site's folder, with or without an agent. Only the state of the link comes from the agent.
"""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli.arguments import CallIdArgument, NotificationIdArgument
from fieldpost.cli.local.site_buffer import SiteFolderOption, pass_folder_on
from fieldpost.cli.options import is_json
from fieldpost.cli.output import done, moment, print_fields, print_json, print_table

if TYPE_CHECKING:
    from fieldpost.site.buffer.buffer import Buffer

LIMIT_MAX = 10_000
ASK_S = 5.0
ANSWER_BYTES_MAX = 1024 * 1024

RowLimitOption = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="Maximum number of rows.")]

rejected = typer.Typer(help="Notifications that central rejected permanently.", invoke_without_command=True)


def status(folder: SiteFolderOption = Path()) -> None:
    """Show the backlog of this site and, if an agent is running, the state of its link to central."""
    from fieldpost.core.times import to_text
    from fieldpost.site.buffer.agent_lock import running_agent
    from fieldpost.site.buffer.tracking import Tracking
    from fieldpost.site.config.folder import read_folder

    found = read_folder(folder)
    with _buffer_of(folder) as buffer:
        depth, calls = buffer.depth(), Tracking(buffer.read).counts()
    agent = running_agent(folder)
    oldest = None if depth.oldest_created_at is None else to_text(depth.oldest_created_at)
    report = {
        "site": found.name,
        "central_url": found.central_url,
        "agent": agent,
        "waiting": {category.value: count for category, count in depth.waiting.items()},
        "calls": {status.value: count for status, count in calls.items()},
        "rejected": depth.rejected,
        "oldest_created_at": oldest,
        "link": None if agent is None else _ask_agent(folder),
    }
    if is_json():
        print_json(report)
        return
    print_fields(
        [
            ("site", found.name),
            ("agent", "not running" if agent is None else f"running, process {agent}"),
            ("link", _link_text(report["link"]) if agent is not None else None),
            ("waiting", _counts(depth.waiting) or "none"),
            ("oldest", moment(oldest)),
            ("calls", _counts(calls)),
            ("rejected", depth.rejected or None),
        ]
    )


def events(
    kind: Annotated[str | None, typer.Option(help="Kind: queued, delivered, retried, parked, rejected, …")] = None,
    severity: Annotated[str | None, typer.Option(help="info, warning or error.")] = None,
    category: Annotated[str | None, typer.Option(help="notification, external_call or database_write.")] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Only about this notification or call.")] = None,
    target: Annotated[str | None, typer.Option(help="Only this external system or connection.")] = None,
    instance: Annotated[str | None, typer.Option(help="Only about this machine or unit.")] = None,
    script: Annotated[str | None, typer.Option(help="Only from this script.")] = None,
    since: Annotated[str | None, typer.Option(help="At or after this time (UTC).")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time (UTC).")] = None,
    words: Annotated[str | None, typer.Option(help="Only texts that contain all these words.")] = None,
    limit: RowLimitOption = 100,
    folder: SiteFolderOption = Path(),
) -> None:
    """List the site's event log, newest first."""
    from fieldpost.site.buffer import event_log as log
    from fieldpost.site.buffer.event_query import event_filter

    given = {
        "kind": kind,
        "severity": severity,
        "category": category,
        "message_id": message_id,
        "target": target,
        "instance": instance,
        "script": script,
        "since": since,
        "until": until,
        "words": words,
    }
    wanted = event_filter({name: value for name, value in given.items() if value is not None})
    with _buffer_of(folder) as buffer:
        found = buffer.read(lambda cursor: log.query(cursor, wanted, limit=limit))
    _show(
        found,
        ("occurred_at", "severity", "kind", "category", "target", "instance", "message_id", "text"),
        "No matching entries.",
    )


def parked(limit: RowLimitOption = 100, folder: SiteFolderOption = Path()) -> None:
    """List parked calls, oldest first."""
    from fieldpost.site.site import Site

    with Site.open(folder) as site:
        found = site.tracking.parked(limit)
    columns = ("call_id", "created_at", "target_summary", "retry_count", "instance", "last_error")
    _show(found, columns, "No parked calls.")


def retry(call_id: CallIdArgument, folder: SiteFolderOption = Path()) -> None:
    """Retry a parked call. The agent tries it immediately, with a new retry count."""
    done(_act(folder, call_id, "retry"), f"Queued {call_id} for retry.")


def discard(call_id: CallIdArgument, folder: SiteFolderOption = Path()) -> None:
    """Discard a parked call. Its record is kept."""
    done(_act(folder, call_id, "discard"), f"Discarded {call_id}.")


@rejected.callback()
def list_rejected(context: typer.Context, limit: RowLimitOption = 100, folder: SiteFolderOption = Path()) -> None:
    """List rejected notifications, oldest first."""
    if context.invoked_subcommand is not None:
        pass_folder_on(context, folder)
        return
    with _buffer_of(folder) as buffer:
        found = buffer.rejected(limit)
    columns = ("message_id", "rejected_at", "code", "error", "retry_count")
    _show(found, columns, "The rejected box is empty.")


@rejected.command("resubmit")
def resubmit_rejected(message_id: NotificationIdArgument, folder: SiteFolderOption = Path()) -> None:
    """Forward a rejected notification again, under the same id."""
    _leave_box(folder, message_id, "resubmit")
    done({"notification_id": message_id, "status": "forwarding"}, f"Queued {message_id} for forwarding.")


@rejected.command("discard")
def discard_rejected(message_id: NotificationIdArgument, folder: SiteFolderOption = Path()) -> None:
    """Discard a rejected notification."""
    _leave_box(folder, message_id, "discard")
    done({"notification_id": message_id, "status": "discarded"}, f"Discarded {message_id}.")


def _act(folder: Path, call_id: str, action: str) -> dict[str, Any]:
    """The record after the action."""
    from fieldpost.cli.local.script import record_of
    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import Conflict
    from fieldpost.site.buffer.tracking import Tracking

    with _buffer_of(folder) as buffer:
        tracking = Tracking(buffer.read)
        record = tracking.status(call_id)
        if not getattr(buffer, action)(call_id, SystemClock().now(), by=_who()):
            raise Conflict("call.not_parked", f"{call_id} is {record.status.value}, not parked")
        return record_of(tracking.status(call_id))


def _leave_box(folder: Path, message_id: str, action: str) -> None:
    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import NotFound
    from fieldpost.core.ids import parse_notification_id
    from fieldpost.site.buffer import rejected as box

    known_id = parse_notification_id(message_id)
    work = {"resubmit": box.resubmit, "discard": box.discard}[action]
    with _buffer_of(folder) as buffer:
        if not buffer.write(lambda cursor: work(cursor, known_id, SystemClock().now(), _who())):
            raise NotFound("rejected.unknown", f"{message_id} is not in the rejected box")


@contextmanager
def _buffer_of(folder: Path) -> "Iterator[Buffer]":
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import read_folder

    with closing(Buffer(read_folder(folder).buffer_path)) as buffer:
        yield buffer


def _show(found: list[Any], columns: tuple[str, ...], empty: str) -> None:
    from fieldpost.cli.local.script import record_of

    if is_json():
        print_json([record_of(one) for one in found])
        return
    rows = [[_short(getattr(one, column)) for column in columns] for one in found]
    print_table([column.removesuffix("_at").replace("_", " ") for column in columns], rows, empty)


def _short(value: Any) -> Any:
    from fieldpost.core.times import to_text

    return moment(to_text(value)) if hasattr(value, "isoformat") else value


def _ask_agent(folder: Path) -> dict[str, Any] | None:
    """The state of the link according to the agent; None if it does not answer."""
    import socket
    from http.client import HTTPConnection, HTTPException

    if not hasattr(socket, "AF_UNIX"):
        return None
    connection = HTTPConnection("localhost", timeout=ASK_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(ASK_S)
    try:
        connection.sock.connect(str(folder / "agent.sock"))
        connection.request("GET", "/v1/site")
        answer = json.loads(connection.getresponse().read(ANSWER_BYTES_MAX))
        link: dict[str, Any] = answer["link"]
        return link
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()


def _link_text(link: Any) -> str:
    if link is None:
        return "unknown: the agent does not answer"
    if link["is_ok"]:
        return f"ok, last contact {moment(link['last_ok_at'])}" if link["last_ok_at"] else "not used yet"
    return f"failing since {moment(link['failing_since'])}: {link['error']}"


def _counts(counts: Any) -> str | None:
    return ", ".join(f"{count} {name.value}" for name, count in counts.items()) or None


def _who() -> str:
    """The user of this machine, for the event log."""
    import getpass

    try:
        return f"{getpass.getuser()} at the site"
    except (OSError, KeyError):
        return "someone at the site"
