"""`fieldpost site status`, `events`, `parked`, `retry`, `discard`, `rejected`: commands for an engineer at the site.

They read and change the site's folder, with or without an agent. Only the state of the link comes from the agent.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli.arguments import CallIdArgument, NotificationIdArgument
from fieldpost.cli.filters import filtered
from fieldpost.cli.local.site_buffer import SiteFolderOption, pass_folder_on
from fieldpost.cli.options import is_json
from fieldpost.cli.output import done, moment, print_fields, print_json, print_table
from fieldpost.core.search.filters import SITE_EVENT_FILTERS

if TYPE_CHECKING:
    from fieldpost.site.buffer.buffer import Buffer

LIMIT_MAX = 10_000
ASK_S = 5.0

RowLimitOption = Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="Maximum number of rows.")]

rejected = typer.Typer(help="Notifications that central rejected permanently.", invoke_without_command=True)


def status(folder: SiteFolderOption = Path()) -> None:
    """Show the backlog of this site and, if an agent is running, the state of its link to central."""
    from fieldpost.core.times import to_text
    from fieldpost.site.buffer.agent_lock import running_agent
    from fieldpost.site.buffer.tracking import Tracking
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.pair.pair_status import stored_status

    found = read_folder(folder)
    with _buffer_of(folder) as buffer:
        depth, calls = buffer.depth(), Tracking(buffer.read).counts()
        stored = stored_status(buffer, found.pair.peer)
    agent = running_agent(folder)
    answer = None if agent is None else _ask_agent(folder)
    pair = None if stored is None else (answer or {}).get("pair") or asdict(stored)
    oldest = None if depth.oldest_created_at is None else to_text(depth.oldest_created_at)
    report = {
        "site": found.name,
        "central_url": found.central_url,
        "agent": agent,
        "waiting": {category.value: count for category, count in depth.waiting.items()},
        "calls": {status.value: count for status, count in calls.items()},
        "rejected": depth.rejected,
        "oldest_created_at": oldest,
        "link": None if answer is None else answer["link"],
        "pair": pair,
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
            *(pair_fields(pair) if pair is not None else ()),
        ]
    )


def pair_fields(pair: dict[str, Any]) -> list[tuple[str, object]]:
    """The state of a node of a pair, for people."""
    executes = f", executes ({pair['grounds']})" if pair["grounds"] else ""
    heard = "not heard" if pair["peer_age_s"] is None else f"heard {pair['peer_age_s']:g} s ago"
    lag = f"{pair['lag_changes']} changes, {pair['lag_s']:g} s" if pair["lag_changes"] else "none"
    return [
        ("pair", f"node {pair['node']}, {pair['role']}, epoch {pair['epoch']}{executes}"),
        ("other node", f"{pair['peer']}, {heard}"),
        ("lag", lag),
        ("last switch", f"{moment(pair['switched_at'])}: {pair['switch_reason']}" if pair["switched_at"] else None),
        ("differences", ", ".join(pair["differences"]) or None),
    ]


@filtered(SITE_EVENT_FILTERS)
def events(filters: dict[str, Any], limit: RowLimitOption = 100, folder: SiteFolderOption = Path()) -> None:
    """List the site's event log, newest first."""
    from fieldpost.site.buffer import event_queries

    wanted = event_queries.SiteEventFilter.parse(filters)
    with _buffer_of(folder) as buffer:
        found = buffer.read(lambda cursor: event_queries.query(cursor, wanted, limit=limit))
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

    with _buffer_of(folder, changes=True) as buffer:
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
    with _buffer_of(folder, changes=True) as buffer:
        if not buffer.write(lambda cursor: work(cursor, known_id, SystemClock().now(), _who())):
            raise NotFound("rejected.unknown", f"{message_id} is not in the rejected box")


@contextmanager
def _buffer_of(folder: Path, *, changes: bool = False) -> "Iterator[Buffer]":
    """The site's buffer; `changes` refuses it on the standby of a pair."""
    from fieldpost.site.buffer.buffer import Buffer
    from fieldpost.site.config.folder import read_folder
    from fieldpost.site.pair.pair_status import refuse_on_standby

    found = read_folder(folder)
    with closing(Buffer(found.buffer_path)) as buffer:
        if changes:
            refuse_on_standby(buffer, found.pair.peer)
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
    """The state of the site according to the agent; None if it does not answer."""
    from fieldpost.cli.local.agent_socket import ask_agent
    from fieldpost.core.errors import FieldpostError

    try:
        return ask_agent(folder, "GET", "/v1/site", timeout_s=ASK_S)
    except FieldpostError:
        return None


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
