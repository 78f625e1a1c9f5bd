"""`/cached-calls`: the cached calls of the sites, as these report them."""

from datetime import datetime

import msgspec

from fieldpost.central.watch.cached_calls import LIMIT_DEFAULT, is_stuck
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.call_filter import CallFilter
from fieldpost.core.search.filters import CALL_FILTERS
from fieldpost.core.sites.call_mirror import CachedCall
from fieldpost.core.times import to_text
from fieldpost.front.api.intents import IntentView, intent_view
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.http.endpoint_spec import NAME, PAGED, Parameter, filter_parameters, spec


class CachedCallView(msgspec.Struct, frozen=True, kw_only=True):
    """What the site reported last; `first_seen_at`, `received_at` and `gone_at` are by central's clock."""

    site: str
    call_id: str
    category: str
    target: str
    status: str
    is_stuck: bool
    retry_count: int
    last_error: str | None
    http_status: int | None
    instance: str | None
    script: str | None
    execution_id: str | None
    parent_execution_id: str | None
    created_at: str | None
    updated_at: str | None
    terminal_at: str | None
    version: int
    first_seen_at: str
    received_at: str
    gone_at: str | None
    """Since when the site no longer knows it: its buffer was replaced."""


class CachedCallsView(msgspec.Struct, frozen=True):
    cached_calls: list[CachedCallView]
    next_cursor: str | None
    as_of: str


class CachedCallDetailView(msgspec.Struct, frozen=True):
    cached_call: CachedCallView
    intents: list[IntentView]
    reconciled_at: str | None
    """When the mirror of this site was last known to be whole."""
    as_of: str


@spec(CachedCallsView, query=(*filter_parameters(CALL_FILTERS), *PAGED))
async def page(call: Call) -> ApiAnswer:
    """Cached calls, the newest first, narrowed by `site`, `category`, `status`, `from`, `to`, `stuck` and words in
    `target`."""
    query = call.query()
    limit = _number(query, "limit", LIMIT_DEFAULT)
    cursor = query["cursor"][0] if "cursor" in query else None
    wanted = CallFilter.parse(call.filters(CALL_FILTERS))
    found = await call.watch.cached_calls.page(wanted, limit=limit, cursor=cursor)
    return ApiAnswer(
        CachedCallsView([_view(one, call, found.as_of) for one in found.calls], found.next_cursor, to_text(found.as_of))
    )


@spec(CachedCallDetailView, query=(Parameter("site", NAME, "whose call it is", is_required=True),))
async def show(call: Call) -> ApiAnswer:
    """One cached call of a `site`, with what operators asked for."""
    query = call.query()
    if "site" not in query:
        raise InvalidInput("query.missing", "site must be given", field="site")
    found = await call.watch.cached_calls.detail(query["site"][0], call.path("call_id"))
    reconciled_at = found.mirror.reconciled_at if found.mirror else None
    return ApiAnswer(
        CachedCallDetailView(
            _view(found.call, call, found.as_of),
            [intent_view(intent) for intent in found.intents],
            to_text(reconciled_at) if reconciled_at else None,
            to_text(found.as_of),
        )
    )


def _view(one: CachedCall, call: Call, now: datetime) -> CachedCallView:
    report = one.report
    return CachedCallView(
        site=one.site,
        call_id=report.call_id,
        category=report.category.value,
        target=report.target_summary,
        status=report.status.value,
        is_stuck=is_stuck(one, now, call.watch.cached_calls.stuck_after),
        retry_count=report.retry_count,
        last_error=report.last_error,
        http_status=report.http_status,
        instance=report.instance,
        script=report.script,
        execution_id=report.execution_id,
        parent_execution_id=report.parent_execution_id,
        created_at=_text(report.created_at),
        updated_at=_text(report.updated_at),
        terminal_at=_text(report.terminal_at),
        version=report.version,
        first_seen_at=to_text(one.first_seen_at),
        received_at=to_text(one.received_at),
        gone_at=_text(one.gone_at),
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)


def _number(query: dict[str, list[str]], name: str, default: int) -> int:
    text = query[name][0] if name in query else str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput("query.number", f"{name} must be a whole number", field=name)
    return int(text)
