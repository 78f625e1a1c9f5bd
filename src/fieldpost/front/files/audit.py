"""Export of the audit log as a stream: ndjson for programs, CSV for spreadsheets.

The last line states the number of entries; a file without it is incomplete.
"""

import csv
import io
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import fields
from datetime import datetime

import msgspec

from fieldpost.central.operate.audit import Export
from fieldpost.core.audit import AuditEntry
from fieldpost.core.times import to_text
from fieldpost.front.files.csv_cells import to_cell

MEDIA_TYPES = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
FORMATS = tuple(MEDIA_TYPES)
COLUMNS = tuple(field.name for field in fields(AuditEntry))


def file_name(format_: str, as_of: datetime) -> str:
    return f"audit-{as_of:%Y%m%dT%H%M%SZ}.{format_}"


async def to_file(export: Export, format_: str) -> AsyncIterator[bytes]:
    """The pieces of the file, one per batch of entries."""
    write = _csv if format_ == "csv" else _ndjson
    if format_ == "csv":
        yield _csv([COLUMNS])
    count = 0
    async for batch in export.batches:
        yield write([_values(entry) for entry in batch])
        count += len(batch)
    as_of = to_text(export.as_of)
    if format_ == "csv":
        yield f"# {count} entries as of {as_of}\r\n".encode()
    else:
        yield msgspec.json.encode({"exported": count, "as_of": as_of}) + b"\n"


def _values(entry: AuditEntry) -> tuple[object, ...]:
    return tuple(to_text(value) if isinstance(value := getattr(entry, name), datetime) else value for name in COLUMNS)


def _ndjson(rows: Sequence[Sequence[object]]) -> bytes:
    return b"".join(msgspec.json.encode(dict(zip(COLUMNS, row, strict=True))) + b"\n" for row in rows)


def _csv(rows: Sequence[Sequence[object]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return out.getvalue().encode()


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case dict():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return to_cell(str(value))
