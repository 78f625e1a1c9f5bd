"""`fieldpost site status`, `events`, `parked`, `retry`, `discard`, `rejected`: for the engineer at the site's machine.

They work on the site's folder, with or without an agent; only how the link stands is asked of the agent.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.local.site_buffer import SiteFolderOption, pass_folder_on
from fieldpost.cli.output import JsonOption, moment, print_json, print_table, say, show_fields

LIMIT_MAX = 10_000
ASK_S = 5.0
ANSWER_BYTES_MAX = 1024 * 1024

LimitOption = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="At most so many.")]
CallIdArgument = Annotated[str, typer.Argument(metavar="ID", help="The operation's id.")]

rejected = typer.Typer(help="What central refused for good: look, send again, give up.", invoke_without_command=True)


def status(folder: SiteFolderOption = Path(), as_json: JsonOption = False) -> None:
    """Say how this site is: what waits and since when, and how the link to central stands, if an agent runs."""
    from fieldpost.core.times import to_text
    from fieldpost.site.buffer.agent_lock import running_agent
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.buffer.tracking import Tracking
    from fieldpost.site.config.folder import read_folder

    found = read_folder(folder)
    buffer = Buffer(found.buffer_path)
    try:
        depth, operations = buffer.depth(), Tracking(buffer.read).counts()
    finally:
        buffer.close()
    agent = running_agent(folder)
    told = {
        "site": found.name,
        "central_url": found.central_url,
        "agent": agent,
        "waiting": {category.value: count for category, count in depth.waiting.items()},
        "operations": {status.value: count for status, count in operations.items()},
        "rejected": depth.rejected,
        "oldest_created_at": None if depth.oldest_created_at is None else to_text(depth.oldest_created_at),
        "link": None if agent is None else _ask_agent(folder),
    }
    show_fields(
        told,
        as_json,
        [
            ("site", found.name),
            ("agent", "does not run" if agent is None else f"runs as process {agent}"),
            ("link", _link_sentence(told["link"]) if agent is not None else None),
            ("waiting", _counts(depth.waiting) or "nothing"),
            ("oldest", moment(told["oldest_created_at"])),  # type: ignore[arg-type]
            ("operations", _counts(operations)),
            ("rejected", depth.rejected or None),
        ],
    )


def events(
    kind: Annotated[str | None, typer.Option(help="queued, delivered, retried, parked, rejected, …")] = None,
    severity: Annotated[str | None, typer.Option(help="info, warning or error.")] = None,
    category: Annotated[str | None, typer.Option(help="notification, external_call or database_write.")] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Of one notification, call or write.")] = None,
    target: Annotated[str | None, typer.Option(help="Of one external system or connection.")] = None,
    instance: Annotated[str | None, typer.Option(help="About one machine or unit.")] = None,
    script: Annotated[str | None, typer.Option(help="From one script.")] = None,
    since: Annotated[str | None, typer.Option(help="Not older than this time, in UTC.")] = None,
    until: Annotated[str | None, typer.Option(help="Older than this time, in UTC.")] = None,
    words: Annotated[str | None, typer.Option(help="Words that all occur in the text.")] = None,
    limit: LimitOption = 100,
    folder: SiteFolderOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Read the site's event log, newest first."""
    from fieldpost.site.buffer import event_log as log
    from fieldpost.site.buffer.event_query import event_filter

    asked = {
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
    wanted = event_filter({name: value for name, value in asked.items() if value is not None})
    found = _read(folder, lambda cursor: log.query(cursor, wanted, limit=limit))
    _show(
        found,
        ("occurred_at", "severity", "kind", "category", "target", "instance", "message_id", "text"),
        as_json,
        "The log has no such entry.",
    )


def parked(limit: LimitOption = 100, folder: SiteFolderOption = Path(), as_json: JsonOption = False) -> None:
    """Show the calls and writes that wait for a person, the oldest first."""
    from fieldpost.site.site import Site

    with Site.open(folder) as site:
        found = site.tracking.parked(limit)
    columns = ("call_id", "created_at", "target_summary", "retry_count", "instance", "last_error")
    _show(found, columns, as_json, "Nothing is parked here.")


def retry(call_id: CallIdArgument, folder: SiteFolderOption = Path(), as_json: JsonOption = False) -> None:
    """Put a parked call or write back into the queue: the agent tries it at once, counted anew."""
    say(_act(folder, call_id, "retry"), as_json, f"{call_id} is tried again.")


def discard(call_id: CallIdArgument, folder: SiteFolderOption = Path(), as_json: JsonOption = False) -> None:
    """Give a parked call or write up for good. Its record stays."""
    say(_act(folder, call_id, "discard"), as_json, f"{call_id} is discarded.")


@rejected.callback()
def list_rejected(
    context: typer.Context,
    limit: LimitOption = 100,
    folder: SiteFolderOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Show the notifications that central refused for good, the longest there first."""
    if context.invoked_subcommand is not None:
        pass_folder_on(context, folder)
        return
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import read_folder

    buffer = Buffer(read_folder(folder).buffer_path)
    try:
        found = buffer.rejected(limit)
    finally:
        buffer.close()
    columns = ("message_id", "rejected_at", "code", "error", "retry_count")
    _show(found, columns, as_json, "The box is empty.")


@rejected.command("resubmit")
def resubmit_rejected(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The notification's id.")],
    folder: SiteFolderOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Send a rejected notification once more, under the same id."""
    _leave_box(folder, message_id, "resubmit")
    say({"notification_id": message_id, "status": "forwarding"}, as_json, f"{message_id} is sent again.")


@rejected.command("discard")
def discard_rejected(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The notification's id.")],
    folder: SiteFolderOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Give a rejected notification up for good."""
    _leave_box(folder, message_id, "discard")
    say({"notification_id": message_id, "status": "discarded"}, as_json, f"{message_id} is discarded.")


def _act(folder: Path, call_id: str, act: str) -> dict[str, Any]:
    """The record as it is after the act."""
    from fieldpost.cli.local.script import record_of
    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import Conflict
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.buffer.tracking import Tracking
    from fieldpost.site.config.folder import read_folder

    buffer = Buffer(read_folder(folder).buffer_path)
    try:
        tracking = Tracking(buffer.read)
        record = tracking.status(call_id)
        if not getattr(buffer, act)(call_id, SystemClock().now(), by=_who()):
            raise Conflict("operation.not_parked", f"{call_id} is {record.status.value}, not parked")
        return record_of(tracking.status(call_id))
    finally:
        buffer.close()


def _leave_box(folder: Path, message_id: str, act: str) -> None:
    from fieldpost.clock import SystemClock
    from fieldpost.core.errors import NotFound
    from fieldpost.core.ids import parse_notification_id
    from fieldpost.site.buffer import rejected as box
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import read_folder

    known_id = parse_notification_id(message_id)
    work = {"resubmit": box.resubmit, "discard": box.discard}[act]
    buffer = Buffer(read_folder(folder).buffer_path)
    try:
        if not buffer.write(lambda cursor: work(cursor, known_id, SystemClock().now(), _who())):
            raise NotFound("rejected.unknown", f"{message_id} is not in the rejected box")
    finally:
        buffer.close()


def _read(folder: Path, work: Any) -> Any:
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import read_folder

    buffer = Buffer(read_folder(folder).buffer_path)
    try:
        return buffer.read(work)
    finally:
        buffer.close()


def _show(found: list[Any], columns: tuple[str, ...], as_json: bool, empty: str) -> None:
    from fieldpost.cli.local.script import record_of

    if as_json:
        print_json([record_of(one) for one in found])
        return
    rows = [[_short(getattr(one, column)) for column in columns] for one in found]
    print_table([column.removesuffix("_at").replace("_", " ") for column in columns], rows, empty)


def _short(value: Any) -> Any:
    from fieldpost.core.times import to_text

    return moment(to_text(value)) if hasattr(value, "isoformat") else value


def _ask_agent(folder: Path) -> dict[str, Any] | None:
    """What the agent says of its link; None if it does not answer."""
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
        told = json.loads(connection.getresponse().read(ANSWER_BYTES_MAX))
        link: dict[str, Any] = told["link"]
        return link
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()


def _link_sentence(link: Any) -> str:
    if link is None:
        return "the agent does not say"
    if link["is_ok"]:
        return f"well, last at {moment(link['last_ok_at'])}" if link["last_ok_at"] else "not tried yet"
    return f"failing since {moment(link['failing_since'])}: {link['error']}"


def _counts(counts: Any) -> str | None:
    return ", ".join(f"{count} {name.value}" for name, count in counts.items()) or None


def _who() -> str:
    """Whoever works at this machine, for the log."""
    import getpass

    try:
        return f"{getpass.getuser()} at the site"
    except (OSError, KeyError):
        return "somebody at the site"
