"""Intents, the requests of operators to sites: open ones first, with state, outcome and answer."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from starlette.responses import Response

from fieldpost.central.watch.cursor import LIMIT_MAX
from fieldpost.core.search.filters import INTENT_FILTERS, read_filters
from fieldpost.core.sites.intent import Intent, IntentState
from fieldpost.core.times import from_text
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import address, read_filter
from fieldpost.front.console.kit.forms import local_path
from fieldpost.front.console.kit.request import PageRequest, PageRoute, redirect
from fieldpost.front.console.sites.cached_calls import NOTICES, away

PATH = "/intents"
OPEN = (IntentState.WAITING, IntentState.SENT)
ENDED = (IntentState.DONE, IntentState.CANCELLED, IntentState.EXPIRED)

# Columns of the answers to queries, in reading order; unknown columns of newer sites follow.
_COLUMNS = (
    *("occurred_at", "rejected_at", "at", "severity", "kind", "category", "list_name", "subject", "target", "text"),
    *("message", "code", "error", "retry_count", "http_status", "last_error", "instance", "script"),
    *("call_id", "notification_id", "message_id", "created_at", "updated_at", "sequence"),
)
_TIMES = ("occurred_at", "rejected_at", "at", "created_at", "updated_at")


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    parsed = read_filter(query, INTENT_FILTERS, partial(read_filters, INTENT_FILTERS))
    site, states = parsed.wanted.get("site"), parsed.wanted.get("states", ())
    cursor = query.get("cursor") or None
    watch = request.watch
    is_of_open, is_of_ended = (
        parsed.is_readable and (not states or any(state in some for state in states)) for some in (OPEN, ENDED)
    )
    fleet = await watch.sites.all()
    opened: Sequence[Intent] = ()
    if is_of_open and cursor is None:
        opened = (await watch.cached_calls.intents(site=site, states=states or OPEN, limit=LIMIT_MAX)).intents
    ended = await watch.cached_calls.intents(site=site, states=states or ENDED, cursor=cursor) if is_of_ended else None
    return request.page(
        "intents.html",
        parsed.form,
        by_site=_by_site(opened),
        more_open=len(opened) == LIMIT_MAX,
        ended=ended.intents if ended else (),
        next_path=address(PATH, parsed.read, cursor=ended.next_cursor) if ended and ended.next_cursor else None,
        first_path=address(PATH, parsed.read) if cursor else None,
        away=away(fleet),
        sites=[one.record.name for one in fleet.sites],
        parsed=parsed,
        is_filtered=bool(parsed.given),
        as_of=fleet.as_of,
        cursor=cursor,
        here=address(PATH, parsed.read, cursor=cursor),
        notice=request.notice(NOTICES),
    )


async def one(request: PageRequest) -> Response:
    intent = await request.watch.cached_calls.intent(request.path("intent_id"))
    fleet = await request.watch.sites.all()
    return request.page(
        "intent.html",
        intent=intent,
        is_away=intent.site in away(fleet),
        columns=columns(intent),
        rows=rows(intent),
        times=_TIMES,
        as_of=fleet.as_of,
        own_path=f"{PATH}/{intent.intent_id}",
        notice=request.notice(NOTICES),
    )


async def cancel(request: PageRequest) -> Response:
    form = await request.form()
    intent_id = request.path("intent_id")
    await request.operate.intents.cancel(request.actor, intent_id)
    return redirect(local_path(form.get("next") or f"{PATH}/{intent_id}"), "cancelled")


def rows(intent: Intent) -> list[Mapping[str, Any]]:
    """The rows of the answer, with times parsed; malformed rows are left out."""
    found = (intent.answer or {}).get("rows")
    valid = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    return [{name: _cell(name, value) for name, value in row.items()} for row in valid]


def columns(intent: Intent) -> list[str]:
    """The columns that are not empty, known ones first."""
    said = {name for row in rows(intent) for name, value in row.items() if value not in (None, "")}
    return [name for name in _COLUMNS if name in said] + sorted(said.difference(_COLUMNS))


def _cell(name: str, value: object) -> object:
    moment = from_text(value) if name in _TIMES and isinstance(value, str) else None
    return value if moment is None else moment


def _by_site(opened: Sequence[Intent]) -> dict[str, list[Intent]]:
    ordered = sorted(opened, key=lambda intent: (intent.site, intent.created_at))
    return {site: list(intents) for site, intents in groupby(ordered, key=lambda intent: intent.site)}


ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("GET", PATH + "/{intent_id}", one, Access.VIEWER),
    PageRoute("POST", PATH + "/{intent_id}/cancel", cancel, Access.OPERATOR),
)
