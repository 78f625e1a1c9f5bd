"""Commands from central: retry and discard of parked calls, actions on the rejected box, and queries.

An action is applied once. Its intent id is stored with the outcome in the transaction of its effect; when it arrives
again, because the answer was lost or central was restarted, the stored outcome is the answer. A query changes nothing
and simply runs again.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import cast

import apsw
import msgspec

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError, InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.search.filters import SITE_EVENT_FILTERS
from fieldpost.core.sites.intent import IntentKind, IntentOutcome
from fieldpost.core.sites.message import CallRecord, RejectedMessage
from fieldpost.core.text import truncate
from fieldpost.link.http.view import View
from fieldpost.link.messages import Command, CommandCell, CommandResult, Item
from fieldpost.site.buffer import calls, command_log, event_queries, rejected, tracking
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.event_log import SiteEvent
from fieldpost.site.buffer.event_queries import SiteEventFilter

AnswerRow = dict[str, CommandCell]

ROWS_MAX = 500
ANSWER_BYTES_MAX = 200 * 1024
TEXT_BYTES_MAX = 512

_item = msgspec.json.Decoder(Item)
_PARKED = View(
    "ParkedCall",
    CallRecord,
    "call_id category target=target_summary retry_count last_error http_status instance script created_at updated_at",
)
_REJECTED = View(
    "RejectedNotification", RejectedMessage, "notification_id=message_id code error created_at rejected_at"
)
_EVENT = View(
    "SiteEvent", SiteEvent, "sequence occurred_at kind severity category message_id target instance script text"
)


class CommandHandler:
    """Applies the commands of central at one site."""

    def __init__(self, buffer: Buffer, clock: Clock) -> None:
        self._buffer = buffer
        self._clock = clock

    def apply(self, command: Command) -> CommandResult:
        """Apply the command unless it was applied before; returns the result to send, failures included."""
        try:
            kind = IntentKind(command.kind)
        except ValueError:
            return _failed(command, f"this site's agent does not know the command {command.kind[:64]!r}; upgrade it")
        try:
            if (query := _QUERIES.get(kind)) is not None:
                rows, next_ = self._buffer.read(query, command.arguments)
                return CommandResult(command.intent_id, IntentOutcome.APPLIED.value, None, rows, next_)
            if (action := _ACTIONS.get(kind)) is not None:
                return self._buffer.write(_apply_once, command, action, self._clock.now())
        except FieldpostError as error:
            return _failed(command, str(error))
        return _failed(command, f"a site does not carry out {kind.value}")


def _apply_once(cursor: apsw.Cursor, command: Command, action: "CallAction", now: datetime) -> CommandResult:
    known = command_log.find(cursor, command.intent_id)
    if known is not None:
        return CommandResult(command.intent_id, *known)
    by = f"{command.by} at central" if command.by else "central"
    message_id = command.arguments.get("message_id")
    is_done = isinstance(message_id, str) and is_id(message_id) and action(cursor, message_id, now, by)
    outcome = (IntentOutcome.APPLIED if is_done else IntentOutcome.NOT_PARKED).value
    detail = None if is_done else "nothing with this id is parked or rejected at this site"
    command_log.insert(cursor, command.intent_id, outcome, detail, now)
    return CommandResult(command.intent_id, outcome, detail)


CallAction = Callable[[apsw.Cursor, str, datetime, str], bool]
Arguments = Mapping[str, str | int]
QueryPage = tuple[tuple[AnswerRow, ...], str | None]
"""Rows and the cursor of the next page."""

_ACTIONS: Mapping[IntentKind, CallAction] = {
    IntentKind.RETRY: lambda cursor, message_id, now, by: calls.retry(cursor, message_id, now, by) is not None,
    IntentKind.DISCARD: lambda cursor, message_id, now, by: calls.discard(cursor, message_id, now, by) is not None,
    IntentKind.RESUBMIT_REJECTED: rejected.resubmit,
    IntentKind.DISCARD_REJECTED: rejected.discard,
}


def _list_parked(cursor: apsw.Cursor, arguments: Arguments) -> QueryPage:
    limit = _limit(arguments)
    skipped = _number(arguments.get("cursor", 0), "cursor")
    found = tracking.parked(cursor, limit + 1, skipped)
    rows = _fitting([_parked_row(record) for record in found[:limit]])
    return rows, str(skipped + len(rows)) if len(rows) < len(found) else None


def _list_rejected(cursor: apsw.Cursor, arguments: Arguments) -> QueryPage:
    limit = _limit(arguments)
    found = rejected.page(cursor, _rejected_key(arguments.get("cursor")), limit=limit + 1)
    rows = _fitting([_rejected_row(message) for message in found[:limit]])
    if len(rows) == len(found):
        return rows, None
    rejected_at, message_id = rejected.key_of(found[len(rows) - 1])
    return rows, f"{rejected_at}.{message_id}"


def _query_events(cursor: apsw.Cursor, arguments: Arguments) -> QueryPage:
    limit = _limit(arguments)
    before = _number(arguments["cursor"], "cursor") if "cursor" in arguments else None
    wanted = SiteEventFilter.parse({name: str(arguments[name]) for name in _FILTERS if name in arguments})
    found = event_queries.query(cursor, wanted, before=before, limit=limit + 1)
    rows = _fitting([_event_row(entry) for entry in found[:limit]])
    return rows, str(found[len(rows) - 1].sequence) if len(rows) < len(found) else None


_QUERIES: Mapping[IntentKind, Callable[[apsw.Cursor, Arguments], QueryPage]] = {
    IntentKind.LIST_PARKED: _list_parked,
    IntentKind.LIST_REJECTED: _list_rejected,
    IntentKind.QUERY_EVENTS: _query_events,
}
_FILTERS = [field.name for field in SITE_EVENT_FILTERS]


def _parked_row(record: CallRecord) -> AnswerRow:
    return _cells(_PARKED, record) | {"last_error": _short(record.last_error)}


def _rejected_row(message: RejectedMessage) -> AnswerRow:
    row = _cells(_REJECTED, message) | {"error": _short(message.error)}
    try:
        item = _item.decode(message.payload)
    except msgspec.DecodeError:
        return row
    return row | {"list_name": _short(item.list_name), "subject": _short(item.subject), "script": item.script}


def _event_row(entry: SiteEvent) -> AnswerRow:
    return _cells(_EVENT, entry) | {"text": _short(entry.text)}


def _cells(view: View, value: object) -> AnswerRow:
    return cast(AnswerRow, view.encode(value))


def _fitting(rows: Sequence[AnswerRow]) -> tuple[AnswerRow, ...]:
    """The first rows, at least one, that fit into an answer."""
    size = 0
    for number, row in enumerate(rows):
        size += sum(len(name) + len(str(value)) for name, value in row.items())
        if size > ANSWER_BYTES_MAX and number > 0:
            return tuple(rows[:number])
    return tuple(rows)


def _rejected_key(text: str | int | None) -> tuple[int, str] | None:
    if text is None:
        return None
    rejected_at, _, message_id = str(text).partition(".")
    return _number(rejected_at, "cursor"), message_id


def _limit(arguments: Arguments) -> int:
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
