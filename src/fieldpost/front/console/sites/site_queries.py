"""Queries of a site's rejected box and event log.

Both are stored at the site. A query becomes an intent, queued while the site is offline; the page shows its state and
then the answer. Without an intent in the URL the page shows the last query.
"""

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from fieldpost.central.watch.issue import site_path
from fieldpost.core.errors import InvalidInput, NotFound
from fieldpost.core.ids import is_id
from fieldpost.core.search.filters import SITE_EVENT_FILTERS
from fieldpost.core.sites.intent import Intent, IntentKind
from fieldpost.core.times import to_text
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import TIMES, FilterQuery
from fieldpost.front.console.kit.request import EMPTY_FORM, PageRequest, PageRoute, SubmittedForm, redirect
from fieldpost.front.console.kit.times import moment_in
from fieldpost.front.console.sites.intents import rows

ROWS_MAX = 100
"""Rows per query."""
KINDS = {"resubmit": IntentKind.RESUBMIT_REJECTED, "discard": IntentKind.DISCARD_REJECTED}
EVENT_FIELDS = tuple(field.name for field in SITE_EVENT_FILTERS)
NOTICES = {
    "resubmit": "Requested. The site forwards them again when it is connected. Then query the box again.",
    "discard": "Requested. The site discards them when it is connected. Then query the box again.",
    "cancelled": "Request cancelled.",
}


async def rejected(request: PageRequest) -> Response:
    state, as_of = await request.watch.sites.one(request.path("name"))
    name = state.record.name
    intent = await _intent(request, name, IntentKind.LIST_REJECTED)
    found = rows(intent) if intent else []
    ids = [str(row.get("notification_id", "")) for row in found]
    return request.page(
        "site_rejected.html",
        as_of=as_of,
        site=state,
        intent=intent,
        rows=found,
        requests=await request.watch.sites.asked_about(name, ids) if ids else {},
        own_path=site_path(name),
        notice=request.notice(NOTICES),
    )


async def query_rejected(request: PageRequest) -> Response:
    """Query the rejected box from the start or from the cursor of the last answer."""
    form = await request.form()
    return await _query(request, IntentKind.LIST_REJECTED, {"cursor": form.get("cursor", "")}, "rejected")


async def confirm(request: PageRequest) -> Response:
    query = request.http.query_params
    return await _confirm(request, query.get("verb", ""), query.getlist("id"))


async def decide(request: PageRequest) -> Response:
    form, name = await request.form(), request.path("name")
    verb, ids, reason = form.get("verb", ""), form.get("ids", "").split(), form.get("reason", "").strip()
    try:
        await request.operate.intents.create(request.actor, name, _kind(verb), message_ids=ids, reason=reason or None)
    except InvalidInput as error:
        return await _confirm(request, verb, ids, SubmittedForm.rejected(form, error))
    return redirect(f"{site_path(name)}/rejected", verb)


async def query_events(request: PageRequest) -> Response:
    form = {name: value.strip() for name, value in (await request.form()).items()}
    try:
        asked = {name: form.get(name, "") for name in (*EVENT_FIELDS, "cursor")}
        for name in TIMES:
            if asked[name]:
                asked[name] = to_text(moment_in(asked[name], form.get("zone", ""), name))
        return await _query(request, IntentKind.QUERY_EVENTS, asked, "events")
    except InvalidInput as error:
        return await events(request, SubmittedForm.rejected(form, error))


async def events(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    state, as_of = await request.watch.sites.one(request.path("name"))
    intent = await _intent(request, state.record.name, IntentKind.QUERY_EVENTS)
    asked = intent.arguments if intent else {}
    arguments = {name: str(asked[name]) for name in EVENT_FIELDS if name in asked}
    given = dict(form.given) or arguments
    # Times of a rejected form are as typed, in the browser's zone.
    read: dict[str, str | list[str]] = {
        name: given[name] for name in EVENT_FIELDS if given.get(name) and not (form.given and name in TIMES)
    }
    return request.page(
        "site_events.html",
        form,
        as_of=as_of,
        site=state,
        intent=intent,
        rows=rows(intent) if intent else [],
        arguments=arguments,
        query=FilterQuery(None, read, given, given.get("zone", ""), dict(form.errors), SITE_EVENT_FILTERS),
        own_path=site_path(state.record.name),
        notice=request.notice(NOTICES),
    )


async def _query(request: PageRequest, kind: IntentKind, asked: Mapping[str, str], page: str) -> Response:
    name = request.path("name")
    arguments: dict[str, str | int] = {field: value for field, value in asked.items() if value}
    (intent,) = await request.operate.intents.create(
        request.actor, name, kind, arguments=arguments | {"limit": ROWS_MAX}
    )
    return redirect(f"{site_path(name)}/{page}?intent={intent.intent_id}")


async def _intent(request: PageRequest, name: str, kind: IntentKind) -> Intent | None:
    """The intent in the URL, or the last one; NotFound for an intent of another site or page."""
    intent_id = request.http.query_params.get("intent")
    if not intent_id:
        return await request.watch.sites.newest_query(name, kind)
    intent = await request.watch.cached_calls.intent(intent_id)
    if intent.site != name or intent.kind is not kind:
        raise NotFound("intent.unknown", "this site has no such request")
    return intent


async def _confirm(request: PageRequest, verb: str, ids: Sequence[str], form: SubmittedForm = EMPTY_FORM) -> Response:
    is_discard = _kind(verb) is IntentKind.DISCARD_REJECTED
    state, _ = await request.watch.sites.one(request.path("name"))
    chosen = [one for one in dict.fromkeys(ids) if is_id(one)]
    what, them = ("this notification", "it") if len(chosen) == 1 else (f"{len(chosen)} notifications", "them")
    own_path = f"{site_path(state.record.name)}/rejected"
    return request.confirm(
        form=form,
        template="site_rejected_confirm.html",
        title=f"Discard {what}?" if is_discard else f"Forward {what} again?",
        text=f"The site deletes {them}; nobody receives {them}."
        if is_discard
        else f"The site sends {them} to central again. Fix the cause of the rejection first.",
        action=f"{own_path}/decide",
        hidden={"verb": verb, "ids": " ".join(chosen)},
        button="Discard" if is_discard else "Forward again",
        is_danger=is_discard,
        back=own_path,
        why_not=None if chosen else "No notifications selected.",
        site=state,
    )


def _kind(text: str) -> IntentKind:
    if text not in KINDS:
        raise InvalidInput("intent.kind", f"verb must be one of {', '.join(KINDS)}, not {text[:64]!r}", field="verb")
    return KINDS[text]


_ONE = "/sites/{name:path}"
ROUTES = (
    PageRoute("GET", f"{_ONE}/rejected", rejected, Access.VIEWER),
    PageRoute("POST", f"{_ONE}/rejected", query_rejected, Access.OPERATOR),
    PageRoute("GET", f"{_ONE}/rejected/confirm", confirm, Access.OPERATOR),
    PageRoute("POST", f"{_ONE}/rejected/decide", decide, Access.OPERATOR),
    PageRoute("GET", f"{_ONE}/events", events, Access.VIEWER),
    PageRoute("POST", f"{_ONE}/events", query_events, Access.OPERATOR),
)
