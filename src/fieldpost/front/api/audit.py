"""`/audit`: who did what, and what became of it. It holds no bodies."""

import msgspec

from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.audit_filter import AuditFilter
from fieldpost.core.search.filters import AUDIT_FILTERS
from fieldpost.core.times import to_text
from fieldpost.front.files.audit import FORMATS, MEDIA_TYPES, file_name, to_file
from fieldpost.front.http.call import ApiAnswer, Call, Stream
from fieldpost.front.http.endpoint_spec import PAGED, Parameter, filter_parameters, one_of, spec


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the audit log."""

    event_id: str
    occurred_at: str
    kind: str
    status: str
    channel: str
    actor: str
    correlation_id: str | None
    execution_id: str | None
    parent_execution_id: str | None
    source_site_id: str | None
    source_node: str | None
    source_instance_id: str | None
    source_script: str | None
    target: str | None
    duration_ms: int | None
    error_message: str | None
    request_summary: str | None
    response_summary: str | None
    extra: dict[str, object] | None
    bulk_action_id: str | None


class AuditLines(msgspec.Struct, frozen=True):
    entries: list[AuditLine]
    next_cursor: str | None
    searched_to: str | None
    as_of: str


@spec(AuditLines, query=(*filter_parameters(AUDIT_FILTERS), *PAGED))
async def page(call: Call) -> ApiAnswer:
    """A page of the audit log, newest first; filtered by `from` and `to`, `kind` and `status` (repeatable), `channel`,
    `actor` and `target` (of acts, unless a kind is given), `site`, and `about` (an id). While `next_cursor` is given
    there may be more, also on a page with fewer entries than `limit`; `searched_to` says how far back it looked."""
    query = call.query()
    cursor = query["cursor"][0] if "cursor" in query else None
    found = await call.watch.audit.page(_filter(call), limit=call.limit(query), cursor=cursor)
    searched_to = to_text(found.searched_to) if found.searched_to else None
    return ApiAnswer(
        AuditLines([_line(one) for one in found.entries], found.next_cursor, searched_to, to_text(found.as_of))
    )


@spec(
    {"application/x-ndjson": None, "text/csv": None},
    query=(*filter_parameters(AUDIT_FILTERS), Parameter("format", one_of(FORMATS), "of the file; ndjson if not given")),
)
async def export(call: Call) -> ApiAnswer:
    """All entries that fit the filter, newest first, as a file: `format` ndjson (one JSON object a line) or csv. Its
    last line says how many there are; a file without it was cut short. Audited."""
    query = call.query()
    format_ = query.get("format", ["ndjson"])[0]
    if format_ not in FORMATS:
        raise InvalidInput("export.format", f"format must be {' or '.join(FORMATS)}", field="format")
    exported = await call.operate.audit.export(call.actor, _filter(call))
    headers = {"Content-Disposition": f'attachment; filename="{file_name(format_, exported.as_of)}"'}
    return ApiAnswer(Stream(to_file(exported, format_), MEDIA_TYPES[format_]), headers=headers)


def _filter(call: Call) -> AuditFilter:
    return AuditFilter.parse(call.filters(AUDIT_FILTERS))


def _line(entry: AuditEntry) -> AuditLine:
    given = {name: getattr(entry, name) for name in AuditEntry.__dataclass_fields__}
    words = {name: given[name].value for name in ("kind", "status", "channel")}
    return AuditLine(**given | words | {"occurred_at": to_text(entry.occurred_at)})
