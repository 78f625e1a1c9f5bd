"""`/audit`: the audit log. Entries contain no bodies."""

from dataclasses import dataclass

from fieldpost.central.watch.audit import AuditPage
from fieldpost.central.watch.audit_verification import BatchHead, VerifiedPiece
from fieldpost.core.audit import AuditEntry
from fieldpost.core.audit_seal import TamperingFound
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.audit_filter import AuditFilter
from fieldpost.core.search.filters import AUDIT_FILTERS
from fieldpost.core.times import from_text
from fieldpost.front.files.audit import FORMATS, MEDIA_TYPES, file_name, to_file
from fieldpost.front.http.call import ApiAnswer, Call, Stream
from fieldpost.link.http.endpoint_spec import MOMENT, PAGED, Parameter, filter_parameters, one_of, spec
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


@dataclass(frozen=True, slots=True)
class AuditKeys:
    """The public keys of this node."""

    public_keys: list[str]


KEYS = View(
    "AuditKeysView",
    AuditKeys,
    "public_keys",
    description="The Ed25519 public keys that verify the seals of the audit log, in hex; the first one belongs to the "
    "key that signs now.",
)
VERIFIED = View(
    "AuditVerification",
    VerifiedPiece,
    ViewField("findings", view=View("TamperingView", TamperingFound, "kind batch sequence event_id text")),
    ViewField("heads", view=View("BatchHeadView", BatchHead, "number head")),
    "entries next_batch last_batch unsealed as_of",
    description="The result of verifying a run of sealed batches. `next_batch` is where the next request continues; it "
    "is null after the newest batch. `unsealed` is the number of entries that no batch has sealed yet.",
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


@spec(
    VERIFIED,
    query=(
        Parameter("from_batch", {"type": "integer", "minimum": 1, "default": 1}, "The first batch to verify"),
        Parameter("since", MOMENT, "Start with the first batch sealed at this time or later, instead of a number"),
    ),
)
async def verify(call: Call) -> VerifiedPiece:
    """Verify audit entries against their seals, from a batch on, as many as one request may take. `findings` names the
    first entries that were edited, removed, inserted or reordered."""
    verifier = call.watch.audit_verifier
    first = call.parameter("from_batch", "1")
    if not (first.isascii() and first.isdecimal() and 1 <= int(first[:20]) < 2**63):
        raise InvalidInput("query.number", "from_batch must be a whole number from 1 on", field="from_batch")
    since = call.parameter("since")
    if since is not None:
        at = from_text(since)
        if at is None:
            raise InvalidInput("query.moment", "since must be a time with its zone", field="since")
        return await verifier.piece(await verifier.first_since(at))
    return await verifier.piece(int(first))


@spec(KEYS)
async def public_keys(call: Call) -> AuditKeys:
    """The public keys that verify the seals of the audit log, to keep on another machine."""
    return AuditKeys([key.hex() for key in call.watch.audit_verifier.public_keys])


def _filter(call: Call) -> AuditFilter:
    return AuditFilter.parse(call.filters(AUDIT_FILTERS))
