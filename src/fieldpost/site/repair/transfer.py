"""Export and import of a buffer's messages as JSON lines: to inspect them, back them up or move them to another disk.

The first line describes the file; each other line is a message, an entry of the rejected box or a tracking record. An
import adds missing rows and changes no existing ones, so repeating it adds nothing. The file is checked completely
before a row is written, and imported in one transaction.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Literal

import apsw
import msgspec

from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.times import from_microseconds, from_text, to_microseconds, to_text
from fieldpost.link.codec import decode_as
from fieldpost.link.messages import Item
from fieldpost.site.buffer.committer import Committer
from fieldpost.site.buffer.rows import table_of_category
from fieldpost.site.buffer.schema import schema_version
from fieldpost.site.repair.consistency import make_consistent

FORMAT_VERSION = 1
LINE_BYTES_MAX = 8 * 1024 * 1024

CallCategory = Literal["external_call", "database_write"]


class ExportHead(msgspec.Struct, frozen=True, tag_field="t", tag="export", forbid_unknown_fields=True):
    """The first line."""

    site: str
    exported_at: str
    version: int = FORMAT_VERSION
    schema: int = 0
    """The version of the buffer's layout, for information."""


class MessageLine(msgspec.Struct, frozen=True, tag_field="t", tag="message", forbid_unknown_fields=True):
    message_id: str
    category: Literal["notification", "external_call", "database_write"]
    target: str
    payload: str
    status: Literal["pending", "retrying", "parked"]
    retry_count: int
    last_error: str | None
    created_at: str
    last_attempt_at: str | None


class RejectedLine(msgspec.Struct, frozen=True, tag_field="t", tag="rejected", forbid_unknown_fields=True):
    message_id: str
    category: Literal["notification", "external_call", "database_write"]
    target: str
    payload: str
    code: str
    error: str
    retry_count: int
    created_at: str
    rejected_at: str


class TrackingLine(msgspec.Struct, frozen=True, tag_field="t", tag="tracking", forbid_unknown_fields=True):
    call_id: str
    category: CallCategory
    target_summary: str
    status: Literal["pending", "retrying", "delivered", "parked", "failed", "discarded"]
    retry_count: int
    last_error: str | None
    http_status: int | None
    instance: str | None
    script: str | None
    execution_id: str | None
    parent_execution_id: str | None
    created_at: str
    updated_at: str
    terminal_at: str | None
    version: int


TransferLine = MessageLine | RejectedLine | TrackingLine

_TABLES: tuple[tuple[str, type[TransferLine], str], ...] = (
    ("tracking", TrackingLine, "change_sequence"),
    ("calls", MessageLine, "sequence"),
    ("messages", MessageLine, "sequence"),
    ("rejected", RejectedLine, "rejected_at, message_id"),
)
_EXPORTED = {"messages": "status <> 'marker'"}
_COUNTED = {TrackingLine: "tracking", MessageLine: "messages", RejectedLine: "rejected"}
_TIMES = {"created_at", "updated_at", "terminal_at", "last_attempt_at", "rejected_at"}

_ABSENT = {
    TrackingLine: "NOT EXISTS (SELECT 1 FROM tracking WHERE call_id = :call_id)",
    MessageLine: """NOT EXISTS (SELECT 1 FROM messages WHERE message_id = :message_id)
        AND NOT EXISTS (SELECT 1 FROM calls WHERE message_id = :message_id)
        AND NOT EXISTS (SELECT 1 FROM rejected WHERE message_id = :message_id)
        AND NOT EXISTS (SELECT 1 FROM tracking WHERE call_id = :message_id AND terminal_at IS NOT NULL)""",
    RejectedLine: """NOT EXISTS (SELECT 1 FROM rejected WHERE message_id = :message_id)
        AND NOT EXISTS (SELECT 1 FROM messages WHERE message_id = :message_id)""",
}
_NEXT_CHANGE = "UPDATE facts SET value = value + 1 WHERE name = 'change_sequence' RETURNING value"


class Moved(msgspec.Struct, frozen=True):
    """The number of exported or imported lines, by kind."""

    lines: dict[str, int]
    already_there: int = 0


def export(path: Path, site: str, now: datetime, out: IO[bytes]) -> Moved:
    """Write a snapshot of all messages, rejected ones and tracking records. The buffer is not changed."""
    encode = msgspec.json.Encoder().encode
    committer = Committer.shared(path)

    def work(cursor: apsw.Cursor) -> Moved:
        counts = Counter[str]()
        out.write(encode(ExportHead(site, to_text(now), schema=schema_version())) + b"\n")
        cursor.execute("BEGIN")
        try:
            for table, kind, order in _TABLES:
                names = kind.__struct_fields__
                for row in cursor.execute(
                    f"SELECT {', '.join(names)} FROM {table} WHERE {_EXPORTED.get(table, 'true')} ORDER BY {order}"
                ):
                    out.write(encode(kind(**_exported(names, row))) + b"\n")
                    counts[_COUNTED[kind]] += 1
        finally:
            cursor.execute("COMMIT")
        return Moved(dict(counts))

    try:
        return committer.read(work)
    finally:
        committer.release()


def import_(path: Path, site: str, now: datetime, file: IO[bytes], *, any_site: bool = False) -> Moved:
    """Add the rows of these lines that the buffer does not have. `file` must be seekable.

    Raises InvalidInput naming the invalid line, and Conflict for another site's export unless `any_site`; the buffer is
    then unchanged.
    """
    for number, line in _lines(file, site, any_site):
        try:
            _check(number, line)
        except InvalidInput as error:
            raise _at_line(number, error) from None
    committer = Committer.shared(path)

    def work(cursor: apsw.Cursor) -> Moved:
        counts = Counter[str]()
        for number, line in _lines(file, site, any_site):
            try:
                counts[_COUNTED[type(line)] if _add(cursor, line) else ""] += 1
            except apsw.ConstraintError as error:
                raise _wrong(number, f"violates a constraint: {error}") from None
        make_consistent(cursor, now)
        there = counts.pop("", 0)
        return Moved(dict(counts), there)

    try:
        return committer.write(work)
    finally:
        committer.release()


def _add(cursor: apsw.Cursor, line: TransferLine) -> bool:
    names = type(line).__struct_fields__
    values = {name: _stored(name, getattr(line, name)) for name in names}
    absent = _ABSENT[type(line)]
    if not cursor.execute(f"SELECT {absent}", values).fetchall()[0][0]:
        return False
    if isinstance(line, TrackingLine):
        values["change_sequence"] = cursor.execute(_NEXT_CHANGE).fetchall()[0][0]
    columns, places = ", ".join(values), ", ".join(f":{name}" for name in values)
    cursor.execute(f"INSERT INTO {_table_of(line)} ({columns}) VALUES ({places})", values)
    return True


def _lines(file: IO[bytes], site: str, any_site: bool) -> Iterator[tuple[int, TransferLine]]:
    file.seek(0)
    number = 0
    while content := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(content) > LINE_BYTES_MAX:
            raise _wrong(number, f"must be at most {LINE_BYTES_MAX} bytes")
        try:
            if number == 1:
                _check_head(decode_as(content, ExportHead), site, any_site)
            else:
                yield number, decode_as(content, TransferLine)  # type: ignore[arg-type]
        except InvalidInput as error:
            raise _at_line(number, error) from None
    if number == 0:
        raise _wrong(1, "is missing: an export starts with a header line")


def _check_head(head: ExportHead, site: str, any_site: bool) -> None:
    if head.version > FORMAT_VERSION:
        raise _wrong(1, f"has version {head.version}, this Fieldpost reads up to {FORMAT_VERSION}", "version")
    if head.site != site and not any_site:
        raise Conflict(
            "import.other_site",
            f"the export is of the site {head.site}, but this site is {site}",
            hint="use --any-site to import it anyway; central will treat the messages as this site's",
        )


def _check(number: int, line: TransferLine) -> None:
    """Check rules that the tables do not enforce."""
    fields = type(line).__struct_fields__
    for name in fields:
        value = getattr(line, name)
        if name in _TIMES and value is not None and from_text(value) is None:
            raise _wrong(number, "must be a time such as 2026-11-15T08:00:00.000000Z", name)
        if name in ("message_id", "call_id") and not is_id(value):
            raise _wrong(number, "must be an id: a UUID version 7 of 36 lower-case characters", name)
    if isinstance(line, MessageLine):
        _check_payload(number, line)


def _check_payload(number: int, line: MessageLine) -> None:
    content = line.payload.encode("utf-8", "surrogatepass")
    if line.category != "notification":
        decode_as(content, dict[str, Any])
    elif decode_as(content, Item).notification_id != line.message_id:
        raise _wrong(number, "belongs to another notification than message_id", "payload")


def _table_of(line: TransferLine) -> str:
    return table_of_category(line.category) if isinstance(line, MessageLine) else _COUNTED[type(line)]


def _exported(names: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    return {
        name: to_text(from_microseconds(value)) if name in _TIMES and value is not None else value
        for name, value in zip(names, row, strict=True)
    }


def _stored(name: str, value: Any) -> Any:
    moment = from_text(value) if name in _TIMES and value is not None else None
    return value if moment is None else to_microseconds(moment)


def _at_line(number: int, error: InvalidInput) -> InvalidInput:
    # Malformed JSON names a line within the text of one field, not a field of this line.
    field = None if error.code == "json.malformed" else error.field
    return error if error.code == "import.line" else _wrong(number, error.message, field)


def _wrong(number: int, what: str, field: str | None = None) -> InvalidInput:
    where = f"line {number}" + (f", {field}" if field else "")
    return InvalidInput("import.line", f"{where}: {what}", field=field)
