"""The outbox page: the list of notifications, newest first, live."""

from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from fieldpost.central.watch.notifications import Filter
from fieldpost.core.notification import Status
from fieldpost.front.console.visit import Visit

NOTICES = {
    "retried": "Retried: it is pending again, and due at once.",
    "discarded": "Discarded: it will not be sent. Its record stays.",
}


async def page(visit: Visit) -> Response:
    query = visit.request.query_params
    status = query.get("status") or None
    wanted = Filter(
        (Status(status),) if status in list(Status) else (), query.get("list") or None, query.get("site") or None
    )
    cursor = query.get("cursor") or None
    found = await visit.rooms.watch.notifications.page(wanted, cursor=cursor)
    values: dict[str, Any] = {
        "found": found,
        "wanted": wanted,
        "cursor": cursor,
        "counts": await visit.rooms.watch.health.counts(),
        "statuses": list(Status),
        "link": _Links(wanted),
        "notice": NOTICES.get(query.get("done", "")),
    }
    if visit.is_live_update:
        return visit.page("_outbox_live.html", **values)
    sites = [site.name for site in await visit.rooms.operate.sites.all()]
    lists = [found.name for found in await visit.rooms.operate.lists.all()]
    return visit.page("outbox.html", **values, sites=sites, lists=lists)


class _Links:
    """Addresses of this page with another status, or the next page, keeping the other filters."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted

    def status(self, *statuses: Status) -> str:
        return self._to(statuses[0] if statuses else None)

    def cursor(self, cursor: str | None) -> str:
        status = self._wanted.statuses[0] if self._wanted.statuses else None
        return self._to(status, cursor)

    def here(self) -> str:
        return self.cursor(None)

    def _to(self, status: Status | None, cursor: str | None = None) -> str:
        given = {
            "status": status.value if status else None,
            "site": self._wanted.site,
            "list": self._wanted.list_name,
            "cursor": cursor,
        }
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/?{query}" if query else "/"
