"""The outbox page: the figures, and the list of notifications, newest first, live."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from fieldpost.central.watch.health import COUNT_MAX
from fieldpost.central.watch.issues import IssueCode
from fieldpost.central.watch.notifications import ErrorGroup, Page
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import LIVE, Status
from fieldpost.core.search.filters import NOTIFICATION_FILTERS
from fieldpost.core.search.notification_filter import Filter
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import Asked, address, read_filter, typed
from fieldpost.front.console.kit.request import MenuLine, PageRequest, PageRoute, field_errors

PATH = "/notifications"
NOTICES = {
    "retried": "Retried: the notification is pending again and due now.",
    "discarded": "Discarded: the notification will not be sent. Its record is kept.",
}
LAST = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
"""Ranges of time that end now, by the word that stands in the address."""
GROUPS_MAX = 3
NOT_ENDED = tuple(status for status in Status if status in LIVE)
NOT_DELIVERED = tuple(status for status in Status if status is not Status.DELIVERED)
SEVERAL = {NOT_ENDED: "pending or retrying", NOT_DELIVERED: "not delivered"}
"""Statuses that are offered together, and what they are called."""


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    snapshot = await request.backend.watch.kpis.now()
    asked, last = _asked(request, snapshot.as_of)
    errors = dict(asked.errors)
    cursor = query.get("cursor") or None
    found: Page | None = None
    if not errors:
        try:
            found = await request.backend.watch.notifications.page(asked.wanted, cursor=cursor)
        except InvalidInput as error:
            errors |= field_errors(error)
    wanted = asked.wanted
    values: dict[str, Any] = {
        "found": found,
        "cursor": cursor,
        "as_of": found.as_of if found else snapshot.as_of,
        "asked": asked,
        "wanted": wanted,
        "zone": asked.zone,
        "last": last,
        "lasts": list(LAST),
        "figures": snapshot.total,
        "by": request.backend.watch.kpis.by,
        "counts": await request.backend.watch.health.counts(),
        "count_max": COUNT_MAX,
        "statuses": list(Status),
        "several": _several(wanted),
        "link": PageLinks(wanted, last, cursor),
        "is_filtered": wanted != Filter(),
        "is_narrowed": replace(wanted, statuses=()) != Filter(),
        "group_error": _group_error(wanted, found),
        "groups": await _groups(request, wanted, cursor),
    }
    # A page that brings itself up to date keeps the form that it has.
    sites, lists = ([], []) if request.is_live_update else await request.backend.watch.notifications.names()
    return request.page(
        "notifications.html",
        422 if errors else 200,
        **values,
        sites=sites,
        lists=lists,
        errors=errors,
        given=asked.given,
        notice=request.notice(NOTICES),
    )


def _asked(request: PageRequest, now: datetime) -> tuple[Asked[Filter], str | None]:
    """What the address asks for, and the word for its range of time, if it has one that ends now."""
    query = request.http.query_params
    word = query.get("last") or None
    has_times = any(query.get(name, "").strip() for name in ("from", "to"))
    if word is None or has_times:
        return read_filter(query, NOTIFICATION_FILTERS, Filter.parse), None
    if word in LAST:
        since = {"from": typed(now - LAST[word])}
        return read_filter(query, NOTIFICATION_FILTERS, Filter.parse, defaults=since), word
    asked = read_filter(query, NOTIFICATION_FILTERS, Filter.parse)
    wrong = f"Last must be one of {', '.join(LAST)}, not {word[:64]!r}."
    return replace(asked, errors=asked.errors | {"last": wrong}), None


def _several(wanted: Filter) -> Mapping[tuple[Status, ...], str]:
    """The choices of several statuses, with the one that an address made itself."""
    is_own = len(wanted.statuses) > 1 and wanted.statuses not in SEVERAL
    return {**SEVERAL, **({wanted.statuses: " or ".join(wanted.statuses)} if is_own else {})}


async def _groups(request: PageRequest, wanted: Filter, cursor: str | None) -> tuple[ErrorGroup, ...]:
    """Whoever looks at all that is parked is shown first what went wrong."""
    if wanted != Filter(statuses=(Status.PARKED,)) or cursor is not None:
        return ()
    return (await request.backend.watch.notifications.parked_groups()).groups[:GROUPS_MAX]


def _group_error(wanted: Filter, found: Page | None) -> str | None:
    """What went wrong in the group of errors that is asked for, as one of them tells it."""
    if wanted.error_key is None or found is None or not found.lines:
        return None
    return found.lines[0].notification.last_error


@dataclass(frozen=True, slots=True)
class PageLinks:
    """Addresses of this page and of acts on what it shows, keeping the other filters."""

    wanted: Filter
    last: str | None = None
    at: str | None = None

    def status(self, *statuses: Status) -> str:
        return self._to(replace(self.wanted, statuses=statuses))

    def not_ended(self) -> str:
        return self._to(replace(self.wanted, statuses=NOT_ENDED, is_stuck=False, is_overdue=False))

    def within(self, last: str | None) -> str:
        """The same of another range of time: one that ends now, or all of it."""
        return address(PATH, fields_of(replace(self.wanted, since=None, until=None)), last=last)

    def cursor(self, cursor: str | None) -> str:
        return self._to(self.wanted, cursor)

    def first(self) -> str:
        return self.cursor(None)

    def here(self) -> str:
        return self.cursor(self.at)

    def one(self, notification_id: str) -> str:
        """A notification's page, from which one comes back to this one."""
        here = self.here()
        return address(f"{PATH}/{notification_id}", {}, back=here if here != PATH else None)

    def bulk(self, verb: str) -> str:
        """The question before an act on all that fits."""
        fields = {name: value for name, value in fields_of(self.wanted).items() if name != "status"}
        return address("/bulk-actions/new", {"verb": verb, **fields}, back=self.here())

    def _to(self, wanted: Filter, cursor: str | None = None) -> str:
        fields = fields_of(wanted)
        if self.last is not None:
            fields.pop("from", None)
        return address(PATH, fields, last=self.last, cursor=cursor)


def fields_of(wanted: Filter) -> dict[str, str | Sequence[str]]:
    """The filter's fields as they stand in an address."""
    fields: Mapping[str, str | list[str]] = wanted.fields()
    times = {name: typed(at) for name, at in (("from", wanted.since), ("to", wanted.until)) if at is not None}
    return {**fields, **times}


MENU = MenuLine(
    "Notifications",
    PATH,
    "Now",
    "o",
    badge=(IssueCode.PARKED,),
    badge_label="parked",
    also=("/bulk-actions", "/parked-groups"),
)
ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER),)
