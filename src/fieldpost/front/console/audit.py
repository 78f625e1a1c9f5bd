"""The audit log: search and export."""

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse

from fieldpost.core.actor import APP, Role
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


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    parsed = _filter_query(query)
    cursor = query.get("cursor") or None
    found = await request.watch.audit.page(parsed.wanted, cursor=cursor) if parsed.is_readable else None
    zoned = parsed.read | ({"zone": parsed.zone} if parsed.zone else {})
    lines = [AuditRow(entry, request.may(Role.ADMIN)) for entry in found.entries] if found else []
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
        parsed=parsed,
        sites=[site.name for site in await request.operate.sites.all()],
        formats=FORMATS,
        query=urlencode(parsed.read, doseq=True),
        is_filtered=bool(parsed.given),
        has_more=not is_view and bool(parsed.given.keys() - {"actor", "target", "site", "about"}),
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
    exported = await request.operate.audit.export(request.actor, parsed.wanted)
    headers = {"Content-Disposition": f'attachment; filename="{file_name(format_, exported.as_of)}"'}
    return StreamingResponse(to_file(exported, format_), headers=headers, media_type=MEDIA_TYPES[format_])


def _filter_query(query: QueryParams) -> FilterQuery[AuditFilter]:
    return read_filter(query, AUDIT_FILTERS, AuditFilter.parse)


def _is_view(parsed: FilterQuery[AuditFilter], fields: AuditFields) -> bool:
    return {name: set(value) for name, value in parsed.read.items() if name not in ("from", "to")} == {
        name: set(values) for name, values in fields.items()
    }


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry as the page shows it."""

    entry: AuditEntry
    may_administer: bool

    @property
    def style(self) -> tuple[str, str]:
        """Tone and glyph of the status."""
        return _TONES.get(self.entry.status, ("", ""))

    @property
    def what(self) -> str:
        entry = self.entry
        if entry.request_summary and not entry.bulk_action_id:
            return entry.request_summary
        if entry.kind is AuditKind.OPERATOR_ACTION:
            verb = "discard" if entry.status is AuditStatus.DISCARDED else "retry"
            return f"bulk {verb}" if entry.bulk_action_id else verb
        return entry.kind.value.replace("_", " ")

    @property
    def detail(self) -> str | None:
        """The error or response, otherwise the reason that the user gave, if any."""
        entry = self.entry
        reason = entry.request_summary if entry.bulk_action_id else (entry.extra or {}).get("reason")
        return entry.error_message or entry.response_summary or (None if reason is None else str(reason))

    @property
    def bulk_path(self) -> str | None:
        return f"/bulk-actions/{self.entry.bulk_action_id}" if self.entry.bulk_action_id else None

    @property
    def target_path(self) -> str | None:
        target = self.entry.target
        noun, _, _ = (self.entry.request_summary or "").partition(".")
        if not target:
            return None
        if self.entry.channel is AuditChannel.NOTIFICATION:
            return f"/lists/{quote(target, safe='')}"
        place = "/users" if noun in ("user", "password", "session") and self.may_administer else _PLACES.get(noun)
        return f"{place}/{quote(target, safe='')}" if place and target != "all" else None

    @property
    def site_path(self) -> str | None:
        site = self.entry.source_site_id
        return None if site is None or site.startswith(APP) else f"/sites/{quote(site, safe='')}"

    @property
    def about_path(self) -> str | None:
        about, site = self.entry.correlation_id, self.entry.source_site_id
        if about is not None and self.entry.channel is AuditChannel.NOTIFICATION:
            return f"/notifications/{about}"
        return None if about is None or site is None else f"/cached-calls/{about}?{urlencode({'site': site})}"

    @property
    def fields(self) -> list[tuple[str, str]]:
        """All fields of the entry as text."""
        names = (name for name in AuditEntry.__dataclass_fields__ if name != "extra")
        values = {name: getattr(self.entry, name) for name in names}
        found = [(name, value) for name, value in values.items() if value is not None and value is not False]
        found += (self.entry.extra or {}).items()
        return [
            (name.replace("_", " "), to_text(value) if name == "occurred_at" else str(value)) for name, value in found
        ]


MENU = MenuLine("Audit log", PATH, "Records", "a")
ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER), PageRoute("POST", f"{PATH}/export", export, Access.ADMIN))
