"""The audit log: search and export."""

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse

from fieldpost.core.actor import APP
from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.audit_filter import ERRORS, AuditFilter
from fieldpost.core.search.filters import AUDIT_FILTERS
from fieldpost.core.times import to_text
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import FilterQuery, address, read_filter
from fieldpost.front.console.kit.request import MenuLine, PageRequest, PageRoute
from fieldpost.front.files.audit import FORMATS, MEDIA_TYPES, file_name, to_file

PATH = "/audit"
AuditFields = dict[str, list[str]]
EVERYTHING: AuditFields = {}
USER_ACTIONS: AuditFields = {"kind": [AuditKind.OPERATOR_ACTION.value]}
FAILURES: AuditFields = {"status": [word.value for word in ERRORS]}
VIEWS = (("All", EVERYTHING), ("User actions", USER_ACTIONS), ("Errors", FAILURES))
_TONES = {
    AuditStatus.DELIVERED: ("good", "✓"),
    AuditStatus.PARKED: ("bad", "■"),
    AuditStatus.FAILED: ("bad", "▲"),
    AuditStatus.DISCARDED: ("gone", "✕"),
    AuditStatus.SKIPPED: ("gone", "–"),
    AuditStatus.ATTEMPTED: ("calm", "↻"),
}
_PLACES = {"list": "/lists", "channel": "/channels", "site": "/sites", "bulk": "/bulk-actions"}
"""The page of the object of an action (named noun.verb)."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry as the page has it."""

    entry: AuditEntry
    what: str
    bulk_path: str | None
    detail: str | None
    tone: str
    glyph: str
    target_path: str | None
    site_path: str | None
    about_path: str | None
    fields: tuple[tuple[str, str], ...]
    """All fields of the entry as text."""


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    parsed = _filter_query(query)
    cursor = query.get("cursor") or None
    found = await request.backend.watch.audit.page(parsed.wanted, cursor=cursor) if parsed.is_readable else None
    zoned = parsed.read | ({"zone": parsed.zone} if parsed.zone else {})
    lines = [_line(entry, request) for entry in found.entries] if found else []
    ranged = {name: value for name, value in zoned.items() if name in ("from", "to", "zone")}
    views = [(title, address(PATH, {**ranged, **fields}), _is_view(parsed, fields)) for title, fields in VIEWS]
    is_view = any(is_current for *_, is_current in views) and not ranged
    return request.page(
        "audit.html",
        parsed.form,
        found=found,
        lines=lines,
        wanted=parsed.wanted,
        cursor=cursor,
        opened=query.get("open", ""),
        views=views,
        kinds=list(AuditKind),
        statuses=list(AuditStatus),
        channels=list(AuditChannel),
        sites=[site.name for site in await request.backend.operate.sites.all()],
        formats=FORMATS,
        query=urlencode(parsed.read, doseq=True),
        is_filtered=bool(parsed.given),
        has_more=not is_view and bool(parsed.given.keys() - {"actor", "target", "site", "about"}),
        zone=parsed.zone,
        link_with=lambda **more: address(PATH, zoned, **more),
        here=address(PATH, zoned, cursor=cursor, open=query.get("open")),
    )


async def export(request: PageRequest) -> Response:
    """All matching entries as a file. By POST, because the export itself is audited."""
    form = await request.form()
    format_ = form.get("format", "")
    if format_ not in FORMATS:
        raise InvalidInput("export.format", f"format must be {' or '.join(FORMATS)}", field="format")
    parsed = _filter_query(QueryParams(form.get("query", "")))
    if not parsed.is_readable:
        raise InvalidInput("filter.unreadable", "the filter is invalid", hint="set it again on the page")
    exported = await request.backend.operate.audit.export(request.actor, parsed.wanted)
    headers = {"Content-Disposition": f'attachment; filename="{file_name(format_, exported.as_of)}"'}
    return StreamingResponse(to_file(exported, format_), headers=headers, media_type=MEDIA_TYPES[format_])


def _filter_query(query: QueryParams) -> FilterQuery[AuditFilter]:
    return read_filter(query, AUDIT_FILTERS, AuditFilter.parse)


def _is_view(parsed: FilterQuery[AuditFilter], fields: AuditFields) -> bool:
    return {name: set(value) for name, value in parsed.read.items() if name not in ("from", "to")} == {
        name: set(values) for name, values in fields.items()
    }


def _line(entry: AuditEntry, request: PageRequest) -> AuditRow:
    tone, glyph = _TONES.get(entry.status, ("", ""))
    return AuditRow(
        entry,
        _what(entry),
        f"/bulk-actions/{entry.bulk_action_id}" if entry.bulk_action_id else None,
        entry.error_message or entry.response_summary or _reason(entry),
        tone,
        glyph,
        _target_path(entry, request),
        _site_path(entry),
        _about_path(entry),
        tuple(_fields(entry)),
    )


def _what(entry: AuditEntry) -> str:
    if entry.request_summary and not entry.bulk_action_id:
        return entry.request_summary
    if entry.kind is AuditKind.OPERATOR_ACTION:
        verb = "discard" if entry.status is AuditStatus.DISCARDED else "retry"
        return f"bulk {verb}" if entry.bulk_action_id else verb
    return entry.kind.value.replace("_", " ")


def _reason(entry: AuditEntry) -> str | None:
    """The reason that the user gave, if any."""
    reason = entry.request_summary if entry.bulk_action_id else (entry.extra or {}).get("reason")
    return None if reason is None else str(reason)


def _target_path(entry: AuditEntry, request: PageRequest) -> str | None:
    if not entry.target:
        return None
    if entry.channel is AuditChannel.NOTIFICATION:
        return f"/lists/{quote(entry.target, safe='')}"
    noun, _, _ = (entry.request_summary or "").partition(".")
    place = "/users" if noun in ("user", "password", "session") and request.actor.role == "admin" else _PLACES.get(noun)
    return f"{place}/{quote(entry.target, safe='')}" if place and entry.target != "all" else None


def _site_path(entry: AuditEntry) -> str | None:
    site = entry.source_site_id
    return None if site is None or site.startswith(APP) else f"/sites/{quote(site, safe='')}"


def _about_path(entry: AuditEntry) -> str | None:
    if entry.correlation_id is None:
        return None
    if entry.channel is AuditChannel.NOTIFICATION:
        return f"/notifications/{entry.correlation_id}"
    if entry.source_site_id is None:
        return None
    return f"/cached-calls/{entry.correlation_id}?{urlencode({'site': entry.source_site_id})}"


def _fields(entry: AuditEntry) -> list[tuple[str, str]]:
    names = (name for name in AuditEntry.__dataclass_fields__ if name != "extra")
    values = ((name.replace("_", " "), getattr(entry, name)) for name in names)
    found = [(name, value) for name, value in values if value is not None and value is not False]
    found += [(name.replace("_", " "), value) for name, value in (entry.extra or {}).items()]
    return [(name, to_text(value) if name == "occurred at" else str(value)) for name, value in found]


MENU = MenuLine("Audit log", PATH, "Records", "a")
ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER), PageRoute("POST", f"{PATH}/export", export, Access.ADMIN))
