"""`/audit`: the audit log. Entries contain no bodies."""

from fieldpost.central.watch.audit import AuditPage
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.audit_filter import AuditFilter
from fieldpost.core.search.filters import AUDIT_FILTERS
from fieldpost.front.files.audit import FORMATS, MEDIA_TYPES, file_name, to_file
from fieldpost.front.http.call import ApiAnswer, Call, Stream
from fieldpost.link.http.endpoint_spec import PAGED, Parameter, filter_parameters, one_of, spec
from fieldpost.link.http.view import View, ViewField

ENTRY = View(
    "AuditLine",
    AuditEntry,
    "event_id occurred_at kind status channel actor correlation_id execution_id parent_execution_id",
    "source_site_id source_node source_instance_id source_script target duration_ms",
    "error_message request_summary response_summary extra bulk_action_id",
    description="One entry of the audit log.",
)
ENTRIES = View(
    "AuditLines",
    AuditPage,
    ViewField("entries", view=ENTRY),
    "next_cursor searched_to as_of",
)


@spec(ENTRIES, query=(*filter_parameters(AUDIT_FILTERS), *PAGED))
async def page(call: Call) -> AuditPage:
    """List audit entries, newest first. `actor` and `target` select actions only, unless a `kind` is given. A page may
    have fewer entries than `limit` and still a `next_cursor`; `searched_to` is the time back to which it searched."""
    return await call.watch.audit.page(_filter(call), **call.paging())


@spec(
    {"application/x-ndjson": None, "text/csv": None},
    query=(*filter_parameters(AUDIT_FILTERS), Parameter("format", one_of(FORMATS), "File format; default ndjson")),
)
async def export(call: Call) -> ApiAnswer:
    """Export all entries that match the filters as a file, newest first: ndjson (one JSON object per line) or csv. The
    last line states the number of entries; a file without it is incomplete. The export is audited."""
    format_ = call.parameter("format", "ndjson")
    if format_ not in FORMATS:
        raise InvalidInput("export.format", f"format must be {' or '.join(FORMATS)}", field="format")
    exported = await call.operate.audit.export(call.actor, _filter(call))
    headers = {"Content-Disposition": f'attachment; filename="{file_name(format_, exported.as_of)}"'}
    return ApiAnswer(Stream(to_file(exported, format_), MEDIA_TYPES[format_]), headers=headers)


def _filter(call: Call) -> AuditFilter:
    return AuditFilter.parse(call.filters(AUDIT_FILTERS))
