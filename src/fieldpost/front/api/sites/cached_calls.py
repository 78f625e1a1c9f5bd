"""`/cached-calls`: the cached calls of all sites, as the sites reported them."""

from dataclasses import dataclass
from datetime import datetime

from fieldpost.central.watch.cached_calls import CallDetail, CallPage, is_stuck
from fieldpost.core.search.call_filter import CallFilter
from fieldpost.core.search.filters import CALL_FILTERS
from fieldpost.core.sites.call_mirror import CachedCall
from fieldpost.front.api.sites.intents import INTENT
from fieldpost.front.http.call import Call
from fieldpost.link.http.endpoint_spec import NAME, PAGED, Parameter, filter_parameters, spec
from fieldpost.link.http.view import View, ViewField, within


@dataclass(frozen=True, slots=True)
class ListedCall:
    """A cached call and whether it is stuck now."""

    call: CachedCall
    is_stuck: bool


@dataclass(frozen=True, slots=True)
class ListedCalls:
    """A page of cached calls."""

    cached_calls: tuple[ListedCall, ...]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class ShownCall:
    """One cached call with its intents."""

    cached_call: ListedCall
    detail: CallDetail


CALL = View(
    "CachedCallView",
    ListedCall,
    "site=call.site",
    within("call.report", "call_id category"),
    "target=call.report.target_summary status=call.report.status is_stuck",
    within("call.report", "retry_count last_error http_status instance script execution_id parent_execution_id"),
    within("call.report", "created_at updated_at terminal_at version"),
    within("call", "first_seen_at received_at gone_at"),
    description="The last report of the site. `first_seen_at`, `received_at` and `gone_at` are by central's clock; "
    "`gone_at` is the time when the site lost the call because its buffer was replaced.",
)
CALLS = View("CachedCallsView", ListedCalls, ViewField("cached_calls", view=CALL), "next_cursor as_of")
CALL_DETAIL = View(
    "CachedCallDetailView",
    ShownCall,
    ViewField("cached_call", view=CALL),
    ViewField("intents", "detail.intents", INTENT),
    "reconciled_at=detail.mirror.reconciled_at as_of=detail.as_of",
    description="`reconciled_at` is when the mirror of the site was last complete.",
)


@spec(CALLS, query=(*filter_parameters(CALL_FILTERS), *PAGED))
async def page(call: Call) -> ListedCalls:
    """List cached calls, newest first."""
    found: CallPage = await call.watch.cached_calls.page(CallFilter.parse(call.filters(CALL_FILTERS)), **call.paging())
    stuck_after = call.watch.cached_calls.stuck_after
    listed = tuple(ListedCall(one, is_stuck(one, found.as_of, stuck_after)) for one in found.calls)
    return ListedCalls(listed, found.next_cursor, found.as_of)


@spec(CALL_DETAIL, query=(Parameter("site", NAME, "The site of the call", is_required=True),))
async def show(call: Call) -> ShownCall:
    """Show one cached call of a `site` with its intents."""
    found = await call.watch.cached_calls.detail(call.parameter("site"), call.path("call_id"))
    return ShownCall(ListedCall(found.call, found.is_stuck), found)
