"""The outbox page: the list of notifications, newest first, live."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from fieldpost.central.watch.health import COUNT_MAX
from fieldpost.core.notification import Status
from fieldpost.core.search import FIELDS, Filter, parse
from fieldpost.front.auth import Access
from fieldpost.front.console.visit import MenuLine, PageRoute, Visit

PATH = "/notifications"
NOTICES = {
    "retried": "Retried: it is pending again, and due at once.",
    "discarded": "Discarded: it will not be sent. Its record stays.",
}


async def page(visit: Visit) -> Response:
    query = visit.request.query_params
    wanted = _wanted(query)
    cursor = query.get("cursor") or None
    found = await visit.rooms.watch.notifications.page(wanted, cursor=cursor)
    values: dict[str, Any] = {
        "found": found,
        "wanted": wanted,
        "cursor": cursor,
        "counts": await visit.rooms.watch.health.counts(),
        "count_max": COUNT_MAX,
        "statuses": list(Status),
        "link": _Links(wanted),
        "is_filtered": wanted != Filter(),
        "is_parked_only": wanted == Filter(statuses=(Status.PARKED,)),
        "notice": visit.notice(NOTICES),
    }
    sites = [site.name for site in await visit.rooms.operate.sites.all()]
    lists = [found.name for found in await visit.rooms.operate.lists.all()]
    return visit.page("outbox.html", **values, sites=sites, lists=lists)


def _wanted(query: Mapping[str, str]) -> Filter:
    """What the form says; a field left empty says nothing, and its times, which have no zone, are in UTC."""
    given = {name: query[name] for name in FIELDS if query.get(name)}
    if given.get("status") not in list(Status):
        given.pop("status", None)
    for name in ("from", "to"):
        if name in given and len(given[name]) == len("2026-11-15T08:00"):
            given[name] += "Z"
    return parse(given)


class _Links:
    """Addresses of this page with another status, or the next page, keeping the other filters."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted

    def status(self, *statuses: Status) -> str:
        return self._to(replace(self._wanted, statuses=statuses))

    def cursor(self, cursor: str | None) -> str:
        return self._to(self._wanted, cursor)

    def here(self) -> str:
        return self.cursor(None)

    def _to(self, wanted: Filter, cursor: str | None = None) -> str:
        query = urlencode(wanted.fields() | ({"cursor": cursor} if cursor else {}), doseq=True)
        return f"{PATH}?{query}" if query else PATH


MENU = MenuLine("Outbox", PATH, "Now", "o", signal="parked")
ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER),)
