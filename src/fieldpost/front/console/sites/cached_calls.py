"""Cached calls of the sites as last reported, and requests to retry or discard parked ones.

These pages do not change the mirror: an action becomes an intent for the site, shown next to the call until the site
reports the result.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, urlencode

from starlette.responses import Response

from fieldpost.central.watch.cached_calls import CallPage, is_stuck
from fieldpost.central.watch.call_story import story, summary
from fieldpost.central.watch.sites import Fleet, SiteState
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.search.call_filter import CallFilter
from fieldpost.core.search.filters import CALL_FILTERS
from fieldpost.core.sites.call_mirror import CachedCall
from fieldpost.core.sites.health import LinkState
from fieldpost.core.sites.intent import Intent, IntentKind
from fieldpost.core.sites.message import CallStatus
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import QueryFields, address, read_filter
from fieldpost.front.console.kit.forms import local_path
from fieldpost.front.console.kit.request import EMPTY_FORM, MenuLine, PageRequest, PageRoute, SubmittedForm, redirect

PATH = "/cached-calls"
KINDS = {"retry": IntentKind.RETRY, "discard": IntentKind.DISCARD}
NOTICES = {
    "retry": "Retry requested. The site applies it when it is connected and reports the result.",
    "discard": "Discard requested. The site applies it when it is connected and reports the result.",
    "reconcile": "Reconciliation requested. Central reads all calls of the site when it is connected.",
    "asked": "Requested. The answer appears here as soon as the site sends it.",
    "cancelled": "Request cancelled.",
}
ID_LENGTH = 36


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    parsed = read_filter(query, CALL_FILTERS, CallFilter.parse)
    cursor = query.get("cursor") or None
    found = await request.watch.cached_calls.page(parsed.wanted, cursor=cursor) if parsed.is_readable else None
    fleet = await request.watch.sites.all()
    figures = (await request.watch.kpis.now()).total
    calls = found.calls if found else ()
    open_requests = await request.watch.cached_calls.asked(calls) if calls else {}
    site = parsed.wanted.site
    shown = {site} if site else {call.site for call in calls}
    zoned: QueryFields = parsed.read | ({"zone": parsed.zone} if parsed.zone else {})
    return request.page(
        "cached_calls.html",
        parsed.form,
        found=found,
        as_of=found.as_of if found else fleet.as_of,
        cursor=cursor,
        open_requests=open_requests,
        actionable={call.report.call_id for call in calls if _is_actionable(call, open_requests)},
        stuck=_stuck(request, found),
        wanted=parsed.wanted,
        figures=figures,
        by=request.watch.kpis.by,
        parsed=parsed,
        states={state.record.name: state for state in fleet.sites},
        mirrors=[state for state in fleet.sites if state.record.name in shown and (site or is_behind(state))],
        sites=[state.record.name for state in fleet.sites],
        is_filtered=bool(parsed.given),
        link_with=lambda **more: address(PATH, zoned, **more),
        here=address(PATH, zoned, cursor=cursor),
        call_path=call_path,
        confirm_path=confirm_path,
        notice=request.notice(NOTICES),
    )


async def one(request: PageRequest) -> Response:
    site = request.http.query_params.get("site") or None
    detail = await request.watch.cached_calls.detail(site, request.path("call_id"))
    state, _ = await request.watch.sites.one(detail.call.site)
    own_path = call_path(detail.call)
    return request.page(
        "cached_call.html",
        detail=detail,
        call=detail.call,
        report=detail.call.report,
        state=state,
        is_behind=is_behind(state),
        as_of=detail.as_of,
        summary=summary(detail),
        steps=story(detail),
        waiting=next((intent for intent in detail.intents if intent.state.is_open), None),
        own_path=own_path,
        confirm_path=confirm_path,
        here=own_path,
        notice=request.notice(NOTICES),
    )


async def confirm(request: PageRequest) -> Response:
    """Confirm the retry or discard of the selected calls."""
    query = request.http.query_params
    return await _confirm(request, query.get("verb", ""), _chosen(query.getlist("call")), query.get("next"))


async def create_requests(request: PageRequest) -> Response:
    """Create an intent for each selected call, all or none."""
    form = await request.form()
    verb, reason = form.get("verb", ""), form.get("reason", "").strip()
    chosen = _chosen(form.get("calls", "").splitlines())
    kind = _kind(verb)
    if not chosen:
        return await _confirm(request, verb, chosen, form.get("next"))
    try:
        await request.operate.intents.create_each(request.actor, kind, chosen, reason=reason or None)
    except InvalidInput as error:
        return await _confirm(request, verb, chosen, form.get("next"), SubmittedForm.rejected(form, error))
    return redirect(local_path(form.get("next") or PATH), verb)


async def reconcile(request: PageRequest) -> Response:
    """Read all calls of a site again."""
    form = await request.form()
    site = form.get("site", "")
    await request.operate.intents.create(request.actor, site, IntentKind.RECONCILE)
    return redirect(local_path(form.get("next") or f"{PATH}?{urlencode({'site': site})}"), "reconcile")


async def query_parked(request: PageRequest) -> Response:
    """Query the parked calls of a site; the answer appears on the page of the intent."""
    form = await request.form()
    given = await request.operate.intents.create(request.actor, form.get("site", ""), IntentKind.LIST_PARKED)
    return redirect(f"/intents/{given[0].intent_id}", "asked")


async def _confirm(
    request: PageRequest,
    verb: str,
    chosen: Sequence[tuple[str, str]],
    next_path: str | None,
    form: SubmittedForm = EMPTY_FORM,
) -> Response:
    kind = _kind(verb)
    calls = await request.watch.cached_calls.these(chosen)
    fleet = await request.watch.sites.all()
    count = f"{len(chosen)} calls" if len(chosen) != 1 else "this call"
    is_discard = kind is IntentKind.DISCARD
    return request.confirm(
        form=form,
        template="cached_calls_confirm.html",
        title=f"{kind.value.capitalize()} {count}?",
        text="The site gives the parked calls up permanently. Their records are kept."
        if is_discard
        else "The site puts the parked calls back into its retry queue and resets their retry counts.",
        action=f"{PATH}/request",
        hidden={
            "verb": verb,
            "calls": "\n".join(f"{call_id} {site}" for site, call_id in chosen),
            "next": local_path(next_path or PATH),
        },
        button=f"{kind.value.capitalize()} {len(chosen)}" if len(chosen) != 1 else kind.value.capitalize(),
        is_danger=is_discard,
        back=local_path(next_path or PATH),
        why_not=None if chosen else "No calls selected. Select calls, then press the button again.",
        calls=calls,
        moved_on=sum(call.report.status is not CallStatus.PARKED for call in calls),
        away=sorted({site for site, _ in chosen} & away(fleet)),
    )


def away(fleet: Fleet) -> set[str]:
    """Names of the sites that are not online."""
    return {state.record.name for state in fleet.sites if state.link is not LinkState.ONLINE}


def is_behind(state: SiteState) -> bool:
    """Whether the mirror of this site may be out of date."""
    mirror = state.mirror
    if state.link is not LinkState.ONLINE or mirror is None:
        return True
    return mirror.high > mirror.cursor or mirror.is_rereading or mirror.last_refusal is not None


def call_path(call: CachedCall) -> str:
    return f"{PATH}/{call.report.call_id}?{urlencode({'site': call.site})}"


def confirm_path(verb: str, call: CachedCall | Intent, next_path: str) -> str:
    chosen = f"{call.report.call_id} {call.site}" if isinstance(call, CachedCall) else f"{call.message_id} {call.site}"
    return f"{PATH}/confirm?{urlencode({'verb': verb, 'call': chosen, 'next': next_path}, quote_via=quote)}"


def _stuck(request: PageRequest, found: CallPage | None) -> set[str]:
    if found is None:
        return set()
    after = request.watch.cached_calls.stuck_after
    return {call.report.call_id for call in found.calls if is_stuck(call, found.as_of, after)}


def _is_actionable(call: CachedCall, open_requests: Mapping[tuple[str, str], Intent]) -> bool:
    """Whether an operator can act on the call: it is parked and has no open intent."""
    intent = open_requests.get((call.site, call.report.call_id))
    is_asked = intent is not None and intent.state.is_open
    return call.report.status is CallStatus.PARKED and call.gone_at is None and not is_asked


def _kind(verb: str) -> IntentKind:
    kind = KINDS.get(verb)
    if kind is None:
        raise InvalidInput("form.verb", f"verb must be one of {', '.join(KINDS)}", field="verb")
    return kind


def _chosen(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Site and id of each selected call, without duplicates; a line is `ID SITE`."""
    chosen = []
    for line in lines:
        call_id, site = line[:ID_LENGTH], line[ID_LENGTH + 1 :]
        if not is_id(call_id) or not site:
            raise InvalidInput("form.call", "call must be an id and a site, separated by a space", field="call")
        chosen.append((site, call_id))
    return list(dict.fromkeys(chosen))


MENU = MenuLine("Cached calls", PATH, "Now", "k", also=("/intents",))
ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("GET", f"{PATH}/confirm", confirm, Access.OPERATOR),
    PageRoute("POST", f"{PATH}/request", create_requests, Access.OPERATOR),
    PageRoute("POST", f"{PATH}/reconcile", reconcile, Access.OPERATOR),
    PageRoute("POST", f"{PATH}/parked", query_parked, Access.OPERATOR),
    PageRoute("GET", PATH + "/{call_id}", one, Access.VIEWER),
)
