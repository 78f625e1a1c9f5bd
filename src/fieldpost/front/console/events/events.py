"""Events: the list, newest first, and one event with the notifications that resulted from it."""

import json
from urllib.parse import quote

from starlette.responses import Response

from fieldpost.core.search.event_filter import EventFilter
from fieldpost.core.search.filters import EVENT_FILTERS
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import address, read_filter
from fieldpost.front.console.kit.request import MenuLine, PageRequest, PageRoute

PATH = "/events"


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    parsed = read_filter(query, EVENT_FILTERS, EventFilter.parse)
    cursor = query.get("cursor") or None
    events = request.watch.events
    found = await events.page(request.actor, parsed.wanted, cursor=cursor) if parsed.is_readable else None
    zoned = parsed.read | ({"zone": parsed.zone} if parsed.zone else {})
    return request.page(
        "events.html",
        parsed.form,
        found=found,
        parsed=parsed,
        cursor=cursor,
        topics=[topic.name for topic in await events.topics()],
        is_filtered=bool(parsed.given),
        link_with=lambda **more: address(PATH, zoned, **more),
        here=address(PATH, zoned, cursor=cursor),
    )


async def one(request: PageRequest) -> Response:
    cursor = request.http.query_params.get("cursor") or None
    detail = await request.watch.events.detail(request.actor, request.path("event_id"), cursor=cursor)
    event = detail.recorded.event
    is_live = any(count and status in ("pending", "retrying") for status, count in detail.counts.items())
    is_live |= any(one.reason == "no_template" for one in detail.withheld)
    return request.page(
        "event.html",
        detail=detail,
        event=event,
        payload=None if detail.payload is None else _indented(detail.payload),
        topic_path=f"/topics/{quote(event.topic, safe='')}",
        is_live=is_live and cursor is None,
        next_path=address(f"{PATH}/{event.event_id}", {}, cursor=detail.next_cursor) if detail.next_cursor else None,
        first_path=f"{PATH}/{event.event_id}" if cursor else None,
    )


def _indented(payload: str) -> str:
    """The payload for reading. It is stored byte for byte; only the page adds line breaks."""
    try:
        shown = json.dumps(json.loads(payload), ensure_ascii=False, indent=2)
        shown.encode()
        return shown
    except (ValueError, RecursionError):  # it may contain an escaped lone surrogate, which no page can show
        return payload


MENU = MenuLine("Events", PATH, "Now", "v")
ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("GET", PATH + "/{event_id}", one, Access.VIEWER),
)
