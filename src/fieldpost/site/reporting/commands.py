"""What central asks for: retry and discard of parked calls, the rejected box, and looks at what is here.

A command acts once. Its id is kept with what came of it, in the transaction of its effect; one that comes again,
because the answer was lost or central was restarted, is answered from there. A look changes nothing and is simply done
again.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw
import msgspec

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError, InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.sites.intent import IntentKind, IntentOutcome
from fieldpost.core.sites.message import CallRecord, Category, RejectedMessage
from fieldpost.core.text import truncate
from fieldpost.core.times import from_text, to_microseconds, to_text
from fieldpost.link.messages import Cell, Command, CommandResult, Item
from fieldpost.site.buffer import calls, event_log, rejected
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.event_log import EventFilter, Severity, SiteEvent
from fieldpost.site.buffer.tracking import Tracking

AnswerRow = dict[str, Cell]

RETENTION_DAYS = 60.0
"""How long it is remembered which commands were applied: twice as long as central goes on sending one."""
ROWS_MAX = 500
ANSWER_BYTES_MAX = 200 * 1024
TEXT_BYTES_MAX = 512

_KNOWN = "SELECT outcome, detail FROM commands WHERE intent_id = :intent_id"
_KEEP = """
INSERT INTO commands (intent_id, outcome, detail, applied_at) VALUES (:intent_id, :outcome, :detail, :applied_at)
"""
_PURGE = """
DELETE FROM commands WHERE intent_id IN (
    SELECT intent_id FROM commands WHERE applied_at < :before LIMIT :limit
)
"""

_item = msgspec.json.Decoder(Item)


class CommandHandler:
    """Does what central asks for at one site."""

    def __init__(self, buffer: Buffer, clock: Clock) -> None:
        self._buffer = buffer
        self._clock = clock

    def apply(self, command: Command) -> CommandResult:
        """Do it, if it was not done before, and tell what came of it. Never raises for what cannot be done."""
        try:
            kind = IntentKind(command.kind)
        except ValueError:
            return _failed(command, f"this site's agent does not know the command {command.kind[:64]!r}")
        try:
            if (look := _LOOKS.get(kind)) is not None:
                rows, next_ = self._buffer.read(lambda cursor: look(cursor, command.arguments))
                return CommandResult(command.intent_id, IntentOutcome.APPLIED.value, None, rows, next_)
            if (act := _ACTS.get(kind)) is not None:
                return self._act(command, act)
        except FieldpostError as error:
            return _failed(command, str(error))
        return _failed(command, f"{kind.value} is nothing that a site does")

    def _act(self, command: Command, act: "CallAction") -> CommandResult:
        now = self._clock.now()
        by = f"{command.by} at central" if command.by else "central"

        def work(cursor: apsw.Cursor) -> CommandResult:
            known: list[Any] = cursor.execute(_KNOWN, {"intent_id": command.intent_id}).fetchall()
            if known:
                ((outcome, detail),) = known
                return CommandResult(command.intent_id, outcome, detail)
            message_id = command.arguments.get("message_id")
            is_done = isinstance(message_id, str) and is_id(message_id) and act(cursor, message_id, now, by)
            outcome = (IntentOutcome.APPLIED if is_done else IntentOutcome.NOT_PARKED).value
            detail = None if is_done else "there is nothing here under that id that waits for a person"
            kept = {"intent_id": command.intent_id, "outcome": outcome, "detail": detail}
            cursor.execute(_KEEP, kept | {"applied_at": to_microseconds(now)})
            return CommandResult(command.intent_id, outcome, detail)

        return self._buffer.write(work)


def purge(cursor: apsw.Cursor, before: datetime, limit: int = 1_000) -> int:
    """Forget the commands that were applied before this time, at most so many; how many."""
    cursor.execute(_PURGE, {"before": to_microseconds(before), "limit": limit})
    return cursor.connection.changes()


CallAction = Callable[[apsw.Cursor, str, datetime, str], bool]
Look = Callable[[apsw.Cursor, Mapping[str, str | int]], tuple[tuple[AnswerRow, ...], str | None]]

_ACTS: Mapping[IntentKind, CallAction] = {
    IntentKind.RETRY: lambda cursor, message_id, now, by: calls.retry(cursor, message_id, now, by) is not None,
    IntentKind.DISCARD: lambda cursor, message_id, now, by: calls.discard(cursor, message_id, now, by) is not None,
    IntentKind.RESUBMIT_REJECTED: rejected.resubmit,
    IntentKind.DISCARD_REJECTED: rejected.discard,
}


def _look_parked(cursor: apsw.Cursor, arguments: Mapping[str, str | int]) -> tuple[tuple[AnswerRow, ...], str | None]:
    limit = _limit(arguments)
    skipped = _number(arguments.get("cursor", 0), "cursor")
    found = Tracking(lambda work: work(cursor)).parked(limit + 1, skipped)
    rows = _fitting([_parked_row(record) for record in found[:limit]])
    return rows, str(skipped + len(rows)) if len(rows) < len(found) else None


def _look_rejected(cursor: apsw.Cursor, arguments: Mapping[str, str | int]) -> tuple[tuple[AnswerRow, ...], str | None]:
    limit = _limit(arguments)
    found = rejected.page(cursor, _rejected_place(arguments.get("cursor")), limit=limit + 1)
    rows = _fitting([_rejected_row(message) for message in found[:limit]])
    if len(rows) == len(found):
        return rows, None
    rejected_at, message_id = rejected.place_of(found[len(rows) - 1])
    return rows, f"{rejected_at}.{message_id}"


def _look_events(cursor: apsw.Cursor, arguments: Mapping[str, str | int]) -> tuple[tuple[AnswerRow, ...], str | None]:
    limit = _limit(arguments)
    before = _number(arguments["cursor"], "cursor") if "cursor" in arguments else None
    found = event_log.query(cursor, _event_filter(arguments), before=before, limit=limit + 1)
    rows = _fitting([_event_row(entry) for entry in found[:limit]])
    return rows, str(found[len(rows) - 1].sequence) if len(rows) < len(found) else None


_LOOKS: Mapping[IntentKind, Look] = {
    IntentKind.LIST_PARKED: _look_parked,
    IntentKind.LIST_REJECTED: _look_rejected,
    IntentKind.QUERY_EVENTS: _look_events,
}


def _parked_row(record: CallRecord) -> AnswerRow:
    return {
        "call_id": record.call_id,
        "category": record.category.value,
        "target": record.target_summary,
        "retry_count": record.retry_count,
        "last_error": _short(record.last_error),
        "http_status": record.http_status,
        "instance": record.instance,
        "script": record.script,
        "created_at": to_text(record.created_at),
        "updated_at": to_text(record.updated_at),
    }


def _rejected_row(message: RejectedMessage) -> AnswerRow:
    row: AnswerRow = {
        "notification_id": message.message_id,
        "code": message.code,
        "error": _short(message.error),
        "created_at": to_text(message.created_at),
        "rejected_at": to_text(message.rejected_at),
    }
    try:
        item = _item.decode(message.payload)
    except msgspec.DecodeError:
        return row
    return row | {"list_name": _short(item.list_name), "subject": _short(item.subject), "script": item.script}


def _event_row(entry: SiteEvent) -> AnswerRow:
    return {
        "sequence": entry.sequence,
        "occurred_at": to_text(entry.occurred_at),
        "kind": entry.kind,
        "severity": entry.severity,
        "category": entry.category.value if entry.category else None,
        "message_id": entry.message_id,
        "target": entry.target,
        "instance": entry.instance,
        "script": entry.script,
        "text": _short(entry.text),
    }


def _fitting(rows: Sequence[AnswerRow]) -> tuple[AnswerRow, ...]:
    """As many of the rows, and one at least, as an answer may hold."""
    size = 0
    for number, row in enumerate(rows):
        size += sum(len(name) + len(str(value)) for name, value in row.items())
        if size > ANSWER_BYTES_MAX and number > 0:
            return tuple(rows[:number])
    return tuple(rows)


def _event_filter(arguments: Mapping[str, str | int]) -> EventFilter:
    given: dict[str, Any] = {}
    for name in ("kind", "message_id", "target", "instance"):
        if name in arguments:
            given[name] = str(arguments[name])
    for name, field in (("from", "since"), ("to", "until")):
        if name in arguments:
            given[field] = from_text(str(arguments[name]))
            if given[field] is None:
                raise InvalidInput("filter.time", f"{name} must be a time in UTC", field=name)
    if "severity" in arguments:
        given["severity"] = _severity(str(arguments["severity"]))
    if "category" in arguments:
        try:
            given["category"] = Category(str(arguments["category"]))
        except ValueError:
            raise InvalidInput("filter.category", "category is no word that is known", field="category") from None
    return EventFilter(**given)


def _severity(text: str) -> Severity:
    match text:
        case "info" | "warning" | "error":
            return text
        case _:
            raise InvalidInput("filter.severity", "severity must be info, warning or error", field="severity")


def _rejected_place(text: str | int | None) -> tuple[int, str] | None:
    if text is None:
        return None
    rejected_at, _, message_id = str(text).partition(".")
    return _number(rejected_at, "cursor"), message_id


def _limit(arguments: Mapping[str, str | int]) -> int:
    return min(max(_number(arguments.get("limit", 100), "limit"), 1), ROWS_MAX)


def _number(value: str | int, field: str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= 17):
        raise InvalidInput("command.number", f"{field} must be a whole number", field=field)
    return int(text)


def _short(text: str | None) -> str | None:
    return None if text is None else truncate(text, TEXT_BYTES_MAX)


def _failed(command: Command, detail: str) -> CommandResult:
    return CommandResult(command.intent_id, IntentOutcome.OPERATION_FAILED.value, truncate(detail))
